// Lets Python read the headers of safetensors files, and what their names say, with the code that an import uses.
#ifndef CAIRN_PYTHON_NATIVE_SAFETENSORS_TEXT_H_
#define CAIRN_PYTHON_NATIVE_SAFETENSORS_TEXT_H_

#include <cstdint>

extern "C" {

// Reads the header of a safetensors file. `bytes` are untrusted: the begin of the file, with at least the header.
// Returns 1 and JSON: {"bytes": length of the header, "tensors": [[name, dtype, [size ...], begin, end] ...],
// "metadata": [[key, value] ...]}, by position; dtypes under torch's names. Returns 0 and "REASON: message", with the
// reasons of ParsePlainHeader. cairn_free_text takes the text; it is null if there is no memory.
int64_t cairn_safetensors_header(const char* bytes, int64_t size, int64_t file_bytes, char** text, int64_t* text_bytes);

// Reads a model.safetensors.index.json. The result is as above: [[tensor, file] ...], by tensor; the reason is that of
// ParsePlainIndex.
int64_t cairn_safetensors_index(const char* bytes, int64_t size, char** text, int64_t* text_bytes);

// Says which files of numbered sets are missing among `names`, which are separated by zero bytes. The result is as
// above: [[pattern of a set's names, number of its files that are missing] ...].
int64_t cairn_numbered_files(const char* names, int64_t size, char** text, int64_t* text_bytes);

// Finds second names of tensors. `names` and `metadata` are separated by zero bytes; the latter has a value after each
// key. `config` is the text of config.json, or empty. The result is as above: [[name, stored name] ...].
int64_t cairn_tied_names(const char* names, int64_t size, const char* metadata, int64_t metadata_size,
                         const char* config, int64_t config_size, char** text, int64_t* text_bytes);

}  // extern "C"

#endif  // CAIRN_PYTHON_NATIVE_SAFETENSORS_TEXT_H_

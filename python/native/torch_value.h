// Lets Python read a value that torch.save wrote without unpickling it. It is a C interface for ctypes.
#ifndef CAIRN_PYTHON_NATIVE_TORCH_VALUE_H_
#define CAIRN_PYTHON_NATIVE_TORCH_VALUE_H_

#include <cstdint>

extern "C" {

// Turns an archive of torch.save into the bytes of a Cairn object (see foreign/read/torch/torch_value.h), which nobody
// trusts. Sets `text` to memory of `text_bytes` bytes that cairn_free_text frees. Returns 1 if they are the object's,
// or 0 if they are "REASON: message" of an error.
int64_t cairn_torch_value(const char* archive, int64_t bytes, const char* name, char** text, int64_t* text_bytes);
void cairn_free_text(char* text);

}  // extern "C"

#endif  // CAIRN_PYTHON_NATIVE_TORCH_VALUE_H_

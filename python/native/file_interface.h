// Is the C interface to FileRead, for Python.
#ifndef CAIRN_PYTHON_NATIVE_FILE_INTERFACE_H_
#define CAIRN_PYTHON_NATIVE_FILE_INTERFACE_H_

#include <cstdint>

extern "C" {

// A part of a tensor in a file, and where it goes (FileShard). At `first` of the numbers stand n sizes of the tensor,
// n offsets and n sizes of the box, and the strides of the target in bytes: n, or with `flat` one.
struct CairnFileShard {
  int64_t file;
  int64_t position;
  int64_t element_bytes;
  int64_t axes;
  int64_t first;
  int64_t range_begin;
  int64_t range_end;
  int64_t flat;
  void* target;
};

// Says what FileReadOutcome says.
struct CairnFileOutcome {
  int64_t kind;
  int64_t error;
  int64_t file;
  int64_t offset;
  int64_t cached_bytes;
  int64_t buffered_bytes;
  int64_t direct_bytes;
};

// Begins to read `count` shards of files. `paths` are texts, `file_bytes` the lengths that the files must have. Returns
// a FileRead, which cairn_file_read_free takes. Returns null, and sets `bad` to the index of the first shard that is
// not valid or leaves its file; to -1 if there is no memory.
void* cairn_file_read_begin(const char* const* paths, const int64_t* file_bytes, int64_t files,
                            const CairnFileShard* shards, int64_t count, const int64_t* numbers, int64_t threads,
                            int64_t shared, int64_t* bad);
// See FileRead::Wait. Returns 1 if the read has ended.
int64_t cairn_file_read_wait(void* read, double seconds, CairnFileOutcome* outcome);
// See FileRead::Cancel.
void cairn_file_read_cancel(void* read);
// Lets go of a read. Its threads may still run.
void cairn_file_read_free(void* read);

}  // extern "C"

#endif  // CAIRN_PYTHON_NATIVE_FILE_INTERFACE_H_

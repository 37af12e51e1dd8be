// Does the few things that the trainer's client needs native code for: strided copies by several threads, checksums,
// and the fenced words of the control page. It is a C interface that Python loads with ctypes, which releases the
// interpreter's lock.
#ifndef CAIRN_PYTHON_NATIVE_TRAINER_MEMORY_H_
#define CAIRN_PYTHON_NATIVE_TRAINER_MEMORY_H_

#include <cstdint>

extern "C" {

// A strided copy. For every index vector within `extent` it copies element_bytes bytes from source + source_offset +
// sum(index * source_stride) to target + target_offset + sum(index * target_stride). `first_dimension` is an index into
// the array of dimensions, where this copy's extent, source strides and target strides follow one another (3 *
// dimensions numbers). A size of -1 means that the caller answers for that side's bounds.
//
// If `casts` is not 0, it is two or more, and as many dtype numbers (cairn.v1.DType) follow the dimensions: each
// element is cast from the first dtype to the second, and so on. element_bytes is then the width of the first; elements
// of the last are written.
struct CairnCopy {
  const void* source;
  int64_t source_bytes;
  int64_t source_offset;
  void* target;
  int64_t target_bytes;
  int64_t target_offset;
  int64_t element_bytes;
  int64_t dimensions;
  int64_t first_dimension;
  int64_t casts;
};

// Makes `count` copies that do not overlap, with up to `threads` threads. Returns -1 if all were made. Otherwise
// nothing was copied, and it returns the index of the first copy that would leave its source or target, has more than
// 32 dimensions, or asks for an impossible cast.
int64_t cairn_copy(const CairnCopy* copies, int64_t count, const int64_t* dimensions, int64_t threads);

// Computes the CRC32C of the bytes that the source sides of the copies walk over, in order of their index vectors. It
// does not look at the target sides. Bounds and result are those of cairn_copy.
int64_t cairn_checksum(const CairnCopy* copies, int64_t count, const int64_t* dimensions, int64_t threads,
                       uint32_t* checksums);

// Stores a word for another process, then, behind a full fence, reads another word. These are the two halves of the
// control page's handshake.
uint64_t cairn_store_then_load(uint64_t* store, uint64_t value, const uint64_t* load);

// Returns the version of this interface; the Python side refuses any other.
int64_t cairn_interface_version();

}  // extern "C"

#endif  // CAIRN_PYTHON_NATIVE_TRAINER_MEMORY_H_

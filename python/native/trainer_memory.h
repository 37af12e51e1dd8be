// The few things that the trainer's client does in native code: strided copies by several threads, checksums, and the
// fenced words of the control page. A C interface, loaded by Python's ctypes, which releases the interpreter's lock.
#ifndef CAIRN_PYTHON_NATIVE_TRAINER_MEMORY_H_
#define CAIRN_PYTHON_NATIVE_TRAINER_MEMORY_H_

#include <cstdint>

extern "C" {

// A strided copy: for every index vector within `extent`, element_bytes bytes from
// source + source_offset + sum(index * source_stride) to target + target_offset + sum(index * target_stride).
// `first_dimension` counts into the array of dimensions, where extent, source strides and target strides of this copy
// follow one another (3 * dimensions numbers). A size of -1 means that the caller answers for that side's bounds.
//
// With `casts` (two or more; 0 for none) as many numbers of dtypes (cairn.v1.DType) follow these: each element is cast
// from the first to the second, and so on. element_bytes is then the first one's width, and the last one's is written.
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

// Executes `count` copies that do not overlap, with up to `threads` threads. Returns -1 if all was done; the index of
// the first copy that would leave its source or target, has more than 32 dimensions, or casts what cannot be cast,
// else: then nothing was copied.
int64_t cairn_copy(const CairnCopy* copies, int64_t count, const int64_t* dimensions, int64_t threads);

// CRC32C of the bytes that each copy's source side walks over, in order of its index vectors; the target side is not
// looked at. Bounds and result as for cairn_copy.
int64_t cairn_checksum(const CairnCopy* copies, int64_t count, const int64_t* dimensions, int64_t threads,
                       uint32_t* checksums);

// Stores a word for another process, then (behind a full fence) reads another one: the two halves of the control page's
// handshake.
uint64_t cairn_store_then_load(uint64_t* store, uint64_t value, const uint64_t* load);

// Version of this interface; the Python side refuses another one.
int64_t cairn_interface_version();

}  // extern "C"

#endif  // CAIRN_PYTHON_NATIVE_TRAINER_MEMORY_H_

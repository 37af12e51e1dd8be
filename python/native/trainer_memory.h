// Does the few things that the trainer's client needs native code for: strided copies by several threads, checksums,
// and the fenced words of the control page. It is a C interface that Python loads with ctypes, which releases the
// interpreter's lock.
#ifndef CAIRN_PYTHON_NATIVE_TRAINER_MEMORY_H_
#define CAIRN_PYTHON_NATIVE_TRAINER_MEMORY_H_

#include <cstdint>

#include "python/native/copy_table.h"

extern "C" {

// Makes `count` copies that do not overlap, with up to `threads` threads. Returns -1 if all were made. Otherwise
// nothing was copied, and it returns the index of the first copy that would leave its source or target, has more than
// 32 dimensions, or asks for an impossible cast.
//
// If `written` is not null, the targets are contiguous and ascend. The distance of their end from `base` is stored
// there for another process, as it grows: all targets below it are written.
int64_t cairn_copy(const CairnCopy* copies, int64_t count, const int64_t* dimensions, int64_t threads, const void* base,
                   uint64_t* written);

// Computes the CRC32C of the bytes that the source sides of the copies walk over, in order of their index vectors. It
// does not look at the target sides. Bounds and result are those of cairn_copy.
int64_t cairn_checksum(const CairnCopy* copies, int64_t count, const int64_t* dimensions, int64_t threads,
                       uint32_t* checksums);

// Computes the parts of fingerprints (common/tensor/fingerprint.h) that these bytes make. `boxes` says for one copy
// after the other where its elements stand: the bytes of an element, the number of axes n, n sizes of the tensor, n
// offsets and n sizes of the box, and the begin and end of the range of the flattened box. The result is that of
// cairn_copy; a box that is not valid, or has another number of bytes than the copy's source, counts as an impossible
// copy.
int64_t cairn_fingerprint(const CairnCopy* copies, int64_t count, const int64_t* dimensions, int64_t threads,
                          const int64_t* boxes, uint64_t* parts);

// Stores a word for another process, then, behind a full fence, reads another word. These are the two halves of the
// control page's handshake.
uint64_t cairn_store_then_load(uint64_t* store, uint64_t value, const uint64_t* load);

// Returns the version of this interface; the Python side refuses any other.
int64_t cairn_interface_version();

}  // extern "C"

#endif  // CAIRN_PYTHON_NATIVE_TRAINER_MEMORY_H_

// Describes copies between devices and the host, and how they ended.
#ifndef CAIRN_GPU_COPY_STAGED_COPY_H_
#define CAIRN_GPU_COPY_STAGED_COPY_H_

#include <cstdint>
#include <string>

#include "gpu/copy/transfer.h"

namespace cairn {

// A copy, and the stream of the trainer after whose work it comes (0 and 1: the default stream).
struct StagedCopy {
  DeviceCopy copy;
  uint64_t stream = 0;
  // The number under which PinnedMemory has the host's side; 0 if that is not pinned.
  uint64_t pinned = 0;
};

// The ways by which a device's bytes may reach the host, from best to worst.
enum class DevicePath : int64_t {
  kPinnedSlab = 0,  // straight, into memory that is pinned
  kPinnedRing = 1,  // through two pinned buffers, and from there by threads of the host
  kPageable = 2,    // through the driver's own buffers
};

struct DeviceOutcome {
  enum Kind : int64_t {
    kDone = 0,
    kDriverFailed = 1,  // `text` has the call and its result
    kStalled = 2,       // work of the driver did not end in time, and goes on: all memory must stay; `text` says which
    kNotOnDevice = 3,   // the memory of copy `index` is no device's, or not any more
    kManyDevices = 4,   // the memory of copy `index` begins on one device and ends on another
    kNotPinned = 5,     // only memory that is pinned can be copied to behind the trainer's back; `fallback` says why
    kCapturing = 6,     // the stream of copy `index` records a graph, in which nothing can be copied
    kTorn = 7,          // what was copied for copy `index` is not what the device held at the save
    kUnguarded = 8,     // an update did not wait for the copies, because the driver kept the guard too long
    kTooLong = 9,       // the memory of copy `index` ends before the array does
  };
  Kind kind = kDone;
  int64_t index = -1;
  DevicePath path = DevicePath::kPinnedSlab;  // the slowest that some copy took
  int64_t bytes = 0;
  int64_t detour_bytes = 0;  // of these, what did not go straight into pinned memory
  int64_t calls = 0;         // that enqueued a copy
  std::string text;
  std::string fallback;  // why it was no better path
  // The first copy that took another path than the others, because the host must put its elements into order.
  int64_t reordered = -1;
  int64_t checked = 0;    // arrays whose CRC32C the device computed
  std::string unchecked;  // why it did not, where it was asked to
};

}  // namespace cairn

#endif  // CAIRN_GPU_COPY_STAGED_COPY_H_

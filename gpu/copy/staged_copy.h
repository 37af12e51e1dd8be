// Describes copies between devices and the host, and how they ended.
#ifndef CAIRN_GPU_COPY_STAGED_COPY_H_
#define CAIRN_GPU_COPY_STAGED_COPY_H_

#include <cstdint>
#include <string>

#include "gpu/copy/transfer.h"

namespace cairn {

// A copy, and the trainer's stream (0 and 1: the default stream). The copy comes after all earlier work in that stream.
struct StagedCopy {
  DeviceCopy copy;
  uint64_t stream = 0;
  // The number of the host's side in PinnedMemory; 0 if it is not pinned.
  uint64_t pinned = 0;
};

// The ways in which bytes move from a device to the host, from best to worst.
enum class DevicePath : int64_t {
  kPinnedSlab = 0,  // straight into pinned memory
  kPinnedRing = 1,  // through two pinned buffers, from which host threads copy
  kPageable = 2,    // through the driver's own buffers
};

struct DeviceOutcome {
  enum Kind : int64_t {
    kDone = 0,
    kDriverFailed = 1,  // `text` has the call and its result
    kStalled = 2,       // the driver's work did not end in time and continues: memory must stay; `text` names the work
    kNotOnDevice = 3,   // the memory of copy `index` is no device memory, or was freed
    kManyDevices = 4,   // the memory of copy `index` begins on one device and ends on another
    kNotPinned = 5,     // an overlapped save needs pinned memory; `fallback` says why it is not pinned
    kCapturing = 6,     // the stream of copy `index` captures a graph, so nothing can be copied
    kTorn = 7,          // the copied bytes of copy `index` differ from the device's at the save
    kUnguarded = 8,     // an update did not wait for the copies, because the driver took too long
    kTooLong = 9,       // the memory of copy `index` ends before the array does
  };
  Kind kind = kDone;
  int64_t index = -1;
  DevicePath path = DevicePath::kPinnedSlab;  // the slowest path of all copies
  int64_t bytes = 0;
  int64_t detour_bytes = 0;  // of these, bytes that did not go straight into pinned memory
  int64_t calls = 0;         // driver calls that enqueued a copy
  std::string text;
  std::string fallback;  // why no better path was used
  // The first copy that took a slower path than the others, because the host must reorder its elements; -1 if none.
  int64_t reordered = -1;
  int64_t checked = 0;    // number of arrays whose CRC32C was compared
  std::string unchecked;  // why the device could not compute CRC32Cs, if `check` was set
};

}  // namespace cairn

#endif  // CAIRN_GPU_COPY_STAGED_COPY_H_

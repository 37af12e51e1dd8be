// The progress of an overlapped save: its copies run on a thread while the trainer continues. Trainer and thread
// synchronize by this object.
#ifndef CAIRN_GPU_COPY_OVERLAP_STATE_H_
#define CAIRN_GPU_COPY_OVERLAP_STATE_H_

#include <cstdint>
#include <map>
#include <vector>

#include "common/base/mutex.h"
#include "gpu/copy/staged_copy.h"

namespace cairn {

struct OverlapRequest {
  // Arrays that are copied late, while the trainer continues. The trainer must call OverlapState::Guard before it
  // changes them. Each is contiguous on the device and on the host.
  std::vector<StagedCopy> behind;
  // All other copies. They are enqueued in the trainer's own streams, so that the trainer's later work comes after
  // them. Those whose elements the host must reorder are finished before the save returns.
  std::vector<StagedCopy> at_once;
  bool check = false;       // compare CRC32Cs that the device computes with the host's bytes
  int64_t chunk_bytes = 0;  // how much is copied at a time; greater than 0
  int64_t threads = 1;      // number of threads that copy on the host
};

// One overlapped save. Thread-safe.
class OverlapState {
 public:
  // For each device, the stream in which the trainer will enqueue an update. A device without an entry uses its default
  // stream.
  using Streams = std::map<int, uint64_t>;

  // The trainer calls the next three. They return false if `seconds` have passed first.

  bool AwaitBegun(double seconds, DeviceOutcome* outcome);
  // Makes the streams wait until the copies have ended. It returns when these waits are enqueued, so the caller does
  // not wait for the copies. If it returns false, the save will end with kUnguarded.
  bool Guard(Streams streams, double seconds);
  // Waits until everything is copied and checked.
  bool AwaitEnd(double seconds, DeviceOutcome* outcome);

  // The thread that copies calls the following.

  void Begun(const DeviceOutcome& outcome);
  // Returns the calls of Guard that wait now.
  std::vector<Streams> Guards();
  // The waits of the first `count` guards are enqueued.
  void Served(size_t count);
  // Waits for a call of Guard, at most `seconds`.
  void AwaitGuard(double seconds);
  // The copies have ended or failed, so no update needs to wait any more.
  void Copied();
  // Sets the outcome and wakes all waiting calls. Must be the last call.
  void End(DeviceOutcome outcome);

 private:
  Mutex mutex_;
  CondVar changed_;
  std::vector<Streams> guards_ ABSL_GUARDED_BY(mutex_);
  int64_t asked_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t served_ ABSL_GUARDED_BY(mutex_) = 0;
  bool missed_ ABSL_GUARDED_BY(mutex_) = false;  // an update went on without its guard
  bool begun_ ABSL_GUARDED_BY(mutex_) = false;
  bool copied_ ABSL_GUARDED_BY(mutex_) = false;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  DeviceOutcome beginning_ ABSL_GUARDED_BY(mutex_);
  DeviceOutcome outcome_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cairn

#endif  // CAIRN_GPU_COPY_OVERLAP_STATE_H_

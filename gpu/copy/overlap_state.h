// The state by which a trainer and the thread that copies behind its back tell each other how far they are.
#ifndef CAIRN_GPU_COPY_OVERLAP_STATE_H_
#define CAIRN_GPU_COPY_OVERLAP_STATE_H_

#include <cstdint>
#include <map>
#include <vector>

#include "common/base/mutex.h"
#include "gpu/copy/staged_copy.h"

namespace cairn {

struct OverlapRequest {
  // Arrays that only guarded updates change, each packed on both sides.
  std::vector<StagedCopy> behind;
  // All other copies. They are done in the trainer's own streams, so that whatever it enqueues later comes after them;
  // those that the host must put into order are done before the save returns.
  std::vector<StagedCopy> at_once;
  bool check = false;  // have the device compute what the host must find
  int64_t chunk_bytes = int64_t{16} << 20;
  int64_t threads = 1;  // that copy on the host
};

// One overlapped save. Thread-safe.
class OverlapState {
 public:
  // Device -> the stream in which the trainer is about to enqueue an update. A device that has none uses its default
  // stream.
  using Streams = std::map<int, uint64_t>;

  // The trainer calls these. They return false when the time has passed.

  bool AwaitBegun(double seconds, DeviceOutcome* outcome);
  // Lets the streams wait until the copies have ended. It returns when that is enqueued, so the caller itself does not
  // wait for the copies. If it returns false, the save will end with kUnguarded.
  bool Guard(Streams streams, double seconds);
  // Waits until all is copied and checked.
  bool AwaitEnd(double seconds, DeviceOutcome* outcome);

  // The thread that copies calls these.

  void Begun(const DeviceOutcome& outcome);
  // Returns the guards that wait now.
  std::vector<Streams> Guards();
  // The first `count` of these are enqueued.
  void Served(size_t count);
  // Waits until there is a guard, for a short time.
  void AwaitGuard(double seconds);
  // Nothing is copied any more, or all of it is in vain, so no update needs to wait.
  void Copied();
  // Also ends what waits for the beginning. The last call.
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

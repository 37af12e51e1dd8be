// How Cairn waits for Amazon's C libraries, which call back on threads of their own.
#ifndef CAIRN_STORE_S3_AWS_EVENT_H_
#define CAIRN_STORE_S3_AWS_EVENT_H_

#include <algorithm>
#include <atomic>
#include <memory>
#include <optional>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/base/mutex.h"

namespace cairn {

// Something that a callback of the libraries ends. Thread-safe.
class AwsEvent {
 public:
  // The event may be gone as soon as this has returned on another thread's side.
  void Set(int error) {
    MutexLock lock(mutex_);
    error_ = error;
    set_ = true;
    changed_.NotifyAll();
  }
  int Wait() {
    MutexLock lock(mutex_);
    while (!set_) changed_.Wait(mutex_);
    return error_;
  }
  // Returns nothing if the event has not come after `most`, or once `stop` (which may be null) is true.
  std::optional<int> WaitFor(absl::Duration most, const std::atomic<bool>* stop = nullptr) {
    constexpr absl::Duration kLook = absl::Milliseconds(100);
    const absl::Time until = absl::Now() + most;
    MutexLock lock(mutex_);
    while (!set_) {
      const absl::Duration left = until - absl::Now();
      if (left <= absl::ZeroDuration() || (stop != nullptr && *stop)) return std::nullopt;
      changed_.WaitFor(mutex_, stop == nullptr ? left : std::min(left, kLook));
    }
    return error_;
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  bool set_ ABSL_GUARDED_BY(mutex_) = false;
  int error_ ABSL_GUARDED_BY(mutex_) = 0;
};

// A callback that has nothing to say but that something has ended. `event` is an AwsEvent.
inline void Ended(void* event) { static_cast<AwsEvent*>(event)->Set(0); }

// What the libraries hold of a thing until they call back.
template <typename T>
void* Held(const std::shared_ptr<T>& thing) {
  return new std::shared_ptr<T>(thing);
}
template <typename T>
std::shared_ptr<T> TakeHeld(void* data) {
  const std::unique_ptr<std::shared_ptr<T>> held(static_cast<std::shared_ptr<T>*>(data));
  return *held;
}

}  // namespace cairn

#endif  // CAIRN_STORE_S3_AWS_EVENT_H_

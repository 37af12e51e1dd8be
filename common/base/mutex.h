// std::mutex with Clang's thread-safety annotations. absl::Mutex will not do: the system's abseil is built without
// ThreadSanitizer, which then reports races in correct programs.
#ifndef CAIRN_COMMON_BASE_MUTEX_H_
#define CAIRN_COMMON_BASE_MUTEX_H_

#include <condition_variable>
#include <mutex>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"

namespace cairn {

class ABSL_LOCKABLE Mutex {
 public:
  void Lock() ABSL_EXCLUSIVE_LOCK_FUNCTION() { mutex_.lock(); }
  void Unlock() ABSL_UNLOCK_FUNCTION() { mutex_.unlock(); }

 private:
  friend class CondVar;
  std::mutex mutex_;
};

class ABSL_SCOPED_LOCKABLE MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) ABSL_EXCLUSIVE_LOCK_FUNCTION(mutex) : mutex_(mutex) { mutex_.Lock(); }
  ~MutexLock() ABSL_UNLOCK_FUNCTION() { mutex_.Unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex& mutex_;
};

class CondVar {
 public:
  // May return without a reason, so callers test their condition in a loop.
  void Wait(Mutex& mutex) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    std::unique_lock<std::mutex> lock(mutex.mutex_, std::adopt_lock);
    condition_.wait(lock);
    lock.release();
  }
  // Returns false when `timeout` has passed; an infinite timeout never passes. Like Wait, it may return true without a
  // reason.
  bool WaitFor(Mutex& mutex, absl::Duration timeout) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    if (timeout > kLongestTimeout) {
      Wait(mutex);
      return true;
    }
    std::unique_lock<std::mutex> lock(mutex.mutex_, std::adopt_lock);
    const bool notified = condition_.wait_for(lock, absl::ToChronoNanoseconds(timeout)) == std::cv_status::no_timeout;
    lock.release();
    return notified;
  }
  void NotifyOne() { condition_.notify_one(); }
  void NotifyAll() { condition_.notify_all(); }

 private:
  // The standard library adds the timeout to the time of its clock, as 64-bit nanoseconds. The sum overflows after 292
  // years, and the timeout would end in the past.
  static constexpr absl::Duration kLongestTimeout = absl::Hours(24 * 365 * 100);

  std::condition_variable condition_;
};

}  // namespace cairn

#endif  // CAIRN_COMMON_BASE_MUTEX_H_

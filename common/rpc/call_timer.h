// Times held calls: tells each one when its time is over.
//
// gRPC's own alarm wakes another thread whenever it fires or is cancelled. A coordinator holds and answers thousands of
// calls a second, and these wake-ups took a quarter of its CPU time for them.
#ifndef CAIRN_COMMON_RPC_CALL_TIMER_H_
#define CAIRN_COMMON_RPC_CALL_TIMER_H_

#include <cstdint>
#include <memory>

#include "absl/container/btree_map.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"

namespace cairn {

// Something that waits for a time. OnTimeOver is called once, on the timer's thread. All timed objects share this
// thread, so OnTimeOver must not block, except on short locks.
class Timed {
 public:
  virtual ~Timed() = default;
  virtual void OnTimeOver() = 0;
};

// A timer with one thread, for all calls of a process. Thread-safe.
class CallTimer {
 public:
  // Times are rounded up to multiples of this, so that one wake-up of the thread serves many entries.
  static constexpr absl::Duration kGrain = absl::Milliseconds(2);

  // Identifies an entry for Cancel.
  struct Entry {
    absl::Time time;
    uint64_t number = 0;
    bool operator<(const Entry& other) const { return time != other.time ? time < other.time : number < other.number; }
  };

  // Returns the process's timer, which is never destroyed. The first call starts the thread; if the system refuses a
  // thread, the process ends. So each server calls this before it serves.
  static CallTimer& OfProcess();

  // Calls OnTimeOver of `timed` after `wait`, if the object still exists. Writes `entry` before that.
  void Set(absl::Duration wait, std::weak_ptr<Timed> timed, Entry& entry);
  // Removes the entry, if it is still there. OnTimeOver may run at this moment.
  void Cancel(const Entry& entry);

 private:
  CallTimer();
  [[noreturn]] void Run();

  const Clock& clock_ = Clock::Real();
  Mutex mutex_;
  CondVar changed_;
  absl::btree_map<Entry, std::weak_ptr<Timed>> entries_ ABSL_GUARDED_BY(mutex_);
  uint64_t last_number_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace cairn

#endif  // CAIRN_COMMON_RPC_CALL_TIMER_H_

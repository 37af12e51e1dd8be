// Tells held calls that their time is over.
//
// gRPC's own alarm would do, but each of them wakes another thread when it fires and when it is cancelled. A
// coordinator holds and answers thousands of calls a second, and this was a quarter of its CPU time for them.
#ifndef CAIRN_COMMON_RPC_CALL_TIMER_H_
#define CAIRN_COMMON_RPC_CALL_TIMER_H_

#include <cstdint>
#include <memory>

#include "absl/container/btree_map.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"

namespace cairn {

// What waits for a time. It is told once, on the timer's thread, which serves all others too: it must not wait for
// anything but short locks.
class Timed {
 public:
  virtual ~Timed() = default;
  virtual void OnTimeOver() = 0;
};

// One thread for all calls of a process. Thread-safe.
class CallTimer {
 public:
  // Times are rounded up to multiples of it, so that a thread that has many to tell is not woken for each.
  static constexpr absl::Duration kGrain = absl::Milliseconds(2);

  // Names an entry, to cancel it.
  struct Entry {
    absl::Time time;
    uint64_t number = 0;
    bool operator<(const Entry& other) const { return time != other.time ? time < other.time : number < other.number; }
  };

  // Returns the process's timer, which is never destroyed. The first caller starts its thread, which ends the process
  // if the system refuses a thread. So each server calls this before it serves.
  static CallTimer& OfProcess();

  // Has `timed` told after `wait`, unless it is gone by then. `entry` is written before that.
  void Set(absl::Duration wait, std::weak_ptr<Timed> timed, Entry& entry);
  // Forgets the entry. It may be told at this moment all the same. Nothing happens if it was told or cancelled before.
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

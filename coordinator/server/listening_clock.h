// Counts the time in which the coordinator could not listen. An overloaded coordinator hears its agents late, and that
// is not their fault: such time counts against no lease.
//
// The server calls itself through its own queues, one call after the other. What such a call takes beyond the usual is
// time in which agents' calls waited as well.
#ifndef CAIRN_COORDINATOR_SERVER_LISTENING_CLOCK_H_
#define CAIRN_COORDINATOR_SERVER_LISTENING_CLOCK_H_

#include <algorithm>

#include "absl/time/time.h"

namespace cairn {

// A function of its calls. `now` must not run backwards. Not thread-safe.
class ListeningClock {
 public:
  // A call that takes no longer tells nothing.
  static constexpr absl::Duration kUsual = absl::Milliseconds(100);
  // The pause between two calls.
  static constexpr absl::Duration kInterval = absl::Milliseconds(250);

  // `longest_gap`: a longer time between two calls of Pass is one in which the whole process was stopped. Others count
  // that.
  explicit ListeningClock(absl::Duration longest_gap) : longest_gap_(longest_gap) {}

  // Time has passed. The caller says so often.
  void Pass(absl::Time now) {
    const absl::Time since = std::max(last_, begun_ + kUsual);
    if (calling() && now > since && now - last_ <= longest_gap_) deaf_ += now - since;
    last_ = now;
  }
  // Returns whether the next call is to be made now.
  bool Due(absl::Time now) const { return !calling() && now - ended_ >= kInterval; }
  bool calling() const { return begun_ != absl::InfiniteFuture(); }
  void Begin(absl::Time now) {
    Pass(now);
    begun_ = now;
  }
  void End(absl::Time now) {
    Pass(now);
    begun_ = absl::InfiniteFuture();
    ended_ = now;
  }
  // The time in which the coordinator could not listen, from the start to the last Pass.
  absl::Duration deaf() const { return deaf_; }

 private:
  const absl::Duration longest_gap_;
  absl::Duration deaf_ = absl::ZeroDuration();
  absl::Time last_ = absl::InfinitePast();
  absl::Time begun_ = absl::InfiniteFuture();
  absl::Time ended_ = absl::InfinitePast();
};

}  // namespace cairn

#endif  // CAIRN_COORDINATOR_SERVER_LISTENING_CLOCK_H_

#include "store/mirror/turns.h"

#include <algorithm>

namespace cairn {
namespace {

// A wait ends so soon, and begins anew: a clock of tests may move meanwhile.
constexpr absl::Duration kLongestWait = absl::Seconds(5);

}  // namespace

Turns::Turn::Turn(Turns& turns, std::string name, absl::Duration patience) : turns_(turns), name_(std::move(name)) {
  const absl::Time deadline = turns_.clock_.SteadyNow() + patience;
  MutexLock lock(turns_.mutex_);
  std::list<const Turn*>& waiting = turns_.waiting_[name_];
  waiting.push_back(this);
  while (!(mine_ = waiting.front() == this)) {
    const absl::Duration left = deadline - turns_.clock_.SteadyNow();
    if (left <= absl::ZeroDuration()) {
      waiting.remove(this);
      return;
    }
    turns_.ended_.WaitFor(turns_.mutex_, std::min(left, kLongestWait));
  }
}

Turns::Turn::~Turn() {
  if (!mine_) return;
  MutexLock lock(turns_.mutex_);
  const auto waiting = turns_.waiting_.find(name_);
  waiting->second.pop_front();
  if (waiting->second.empty()) turns_.waiting_.erase(waiting);
  turns_.ended_.NotifyAll();
}

}  // namespace cairn

#include "coordinator/job/waiting_caller.h"

namespace cairn {
namespace {

constexpr absl::Duration kProgressInterval = absl::Milliseconds(100);

// Returns whether the caller, who knows what went before, has to wait for the next progress.
bool IsSoon(const WaitingCaller& caller) { return caller.known_revision != 0 && caller.waited < kProgressInterval; }

bool HasEnded(v1::Phase::Value state) {
  return state == v1::Phase::COMMITTED || state == v1::Phase::ABORTED || state == v1::Phase::DAMAGED ||
         state == v1::Phase::DELETED;
}

}  // namespace

bool IsAnswered(const WaitingCaller& caller, const v1::Checkpoint& checkpoint, uint64_t epoch) {
  const bool told_here = caller.known_epoch == epoch;
  const bool unsure =
      !told_here && caller.known_epoch != 0 && checkpoint.state() == v1::Phase::PREPARING && !checkpoint.has_step();
  const bool news = !told_here || checkpoint.revision() > caller.known_revision;
  return news && !unsure && (HasEnded(checkpoint.state()) || !IsSoon(caller));
}

bool IsAnswered(const WaitingCaller& caller, uint64_t revision) {
  return revision > caller.known_revision && !IsSoon(caller);
}

}  // namespace cairn

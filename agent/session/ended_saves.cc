#include "agent/session/ended_saves.h"

#include <utility>

namespace cairn {
namespace {

constexpr size_t kKeptEnded = 64;

}  // namespace

void EndedSaves::Add(Ended ended) {
  ++count_;
  ended_.push_back(std::move(ended));
  if (ended_.size() > kKeptEnded) ended_.pop_front();
}

bool EndedSaves::Committed(int64_t step) const {
  for (auto ended = ended_.rbegin(); ended != ended_.rend(); ++ended) {
    if (ended->step == step) return ended->error.ok();
  }
  return false;
}

std::optional<absl::Status> EndedSaves::TakeUntold(int64_t step, uint64_t trainer) {
  for (Ended& ended : ended_) {
    if (ended.step == step && ended.trainer == trainer && std::exchange(ended.untold, false)) return ended.error;
  }
  return std::nullopt;
}

std::optional<absl::Status> EndedSaves::Tell(uint64_t id, uint64_t trainer) {
  for (Ended& ended : ended_) {
    if (ended.id != id || ended.trainer != trainer) continue;
    ended.untold = false;
    return ended.error;
  }
  return std::nullopt;
}

const v1::Checkpoint* EndedSaves::Outcome(int64_t step, uint64_t id, uint64_t trainer) {
  for (auto ended = ended_.rbegin(); ended != ended_.rend(); ++ended) {
    if (ended->step != step || (id != 0 && ended->id != id)) continue;
    const bool own = ended->trainer == trainer;
    if (!own && !ended->error.ok()) continue;
    if (own) ended->untold = false;
    return &ended->checkpoint;
  }
  return nullptr;
}

}  // namespace cairn

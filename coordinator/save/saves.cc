#include "coordinator/save/saves.h"

#include <algorithm>
#include <utility>

namespace cairn {
namespace {

constexpr size_t kEndedKept = 16;
constexpr size_t kMaxActive = 32;

bool IsUndecided(const Save& save) { return !save.ended() && save.phase() != Save::Phase::kAborting; }

}  // namespace

Save& Saves::Begin(int64_t step, JobContext& context) {
  for (Save& previous : saves_) {
    if (previous.step() == step) previous.OweNothing();
  }
  saves_.emplace_back(step, ++context.revision, context.now, context.wall);
  // Other ranks whose calls of this step wait hear that they are in a save now.
  if (context.members.reporting(step) > 1) context.orders_changed = true;
  context.Log(LogLevel::kInfo, "save_state", {{"step", step}, {"state", "COLLECTING"}});
  return saves_.back();
}

bool Saves::full() const { return running() >= kMaxActive; }

const Save* Saves::Active(int64_t step) const {
  const auto found = std::find_if(saves_.begin(), saves_.end(),
                                  [&](const Save& save) { return save.step() == step && !save.ended(); });
  return found == saves_.end() ? nullptr : &*found;
}

Save* Saves::Active(int64_t step) {
  const auto found = std::find_if(saves_.begin(), saves_.end(),
                                  [&](const Save& save) { return save.step() == step && !save.ended(); });
  return found == saves_.end() ? nullptr : &*found;
}

Save* Saves::Last(int64_t step) {
  const auto found =
      std::find_if(saves_.rbegin(), saves_.rend(), [&](const Save& save) { return save.step() == step; });
  return found == saves_.rend() ? nullptr : &*found;
}

const Save* Saves::Ended(int64_t step) const {
  const auto found = std::find_if(saves_.rbegin(), saves_.rend(),
                                  [&](const Save& save) { return save.step() == step && save.ended(); });
  return found == saves_.rend() ? nullptr : &*found;
}

const Save* Saves::FindAsked(int rank, const v1::SaveState& asked) const {
  const uint32_t attempt = asked.attempt();
  const auto found = std::find_if(saves_.begin(), saves_.end(), [&](const Save& save) {
    if (save.step() != asked.step()) return false;
    return attempt > 0 ? save.attempt() == attempt : asked.save() != 0 && save.HasNumber(rank, asked.save());
  });
  return found == saves_.end() ? nullptr : &*found;
}

bool Saves::HasLater(int64_t step, uint32_t attempt) const {
  return std::any_of(saves_.begin(), saves_.end(),
                     [&](const Save& save) { return save.step() == step && save.attempt() > attempt; });
}

const Save* Saves::EndedOf(const Member& member, const v1::SaveState& state) const {
  const auto found = std::find_if(saves_.rbegin(), saves_.rend(), [&](const Save& save) {
    return save.step() == state.step() && save.ended() && save.TookPart(member, state);
  });
  return found == saves_.rend() ? nullptr : &*found;
}

const Save* Saves::EndedFor(const Member& member, const v1::SaveState& state) const {
  const auto found = std::find_if(saves_.rbegin(), saves_.rend(), [&](const Save& save) {
    return save.step() == state.step() && save.ended() && save.Answers(member, state);
  });
  return found == saves_.rend() ? nullptr : &*found;
}

const Save* Saves::Find(const CheckpointKey& key) const {
  const Save* found = nullptr;
  for (const Save& save : saves_) {
    const bool matches =
        key.step.has_value() ? save.step() == *key.step : key.by_request() && save.HasRequest(key.request_id);
    if (matches && (found == nullptr || found->ended())) found = &save;
  }
  return found;
}

const Save* Saves::Shown() const {
  const Save* shown = nullptr;
  for (const Save& save : saves_) {
    if (shown == nullptr || shown->ended()) shown = &save;
  }
  return shown;
}

std::optional<int64_t> Saves::EarliestUndecided() const {
  std::optional<int64_t> earliest;
  for (const Save& save : saves_) {
    if (!IsUndecided(save)) continue;
    if (!earliest.has_value() || save.step() < *earliest) earliest = save.step();
  }
  return earliest;
}

std::optional<int64_t> Saves::StalledStep() const {
  std::optional<int64_t> earliest;
  for (const Save& save : saves_) {
    if (!save.stalled().ok() && (!earliest.has_value() || save.step() < *earliest)) earliest = save.step();
  }
  return earliest;
}

bool Saves::busy() const {
  return std::any_of(saves_.begin(), saves_.end(), [](const Save& save) { return !save.ended(); });
}

size_t Saves::running() const {
  return static_cast<size_t>(
      std::count_if(saves_.begin(), saves_.end(), [](const Save& save) { return !save.ended(); }));
}

absl::Time Saves::oldest_running() const {
  absl::Time oldest = absl::InfiniteFuture();
  for (const Save& save : saves_) {
    if (!save.ended()) oldest = std::min(oldest, save.created());
  }
  return oldest;
}

bool Saves::restless() const {
  return saves_.size() > kEndedKept ||
         std::any_of(saves_.begin(), saves_.end(), [](const Save& save) { return save.holds_calls(); });
}

bool Saves::attention() const {
  return std::any_of(saves_.begin(), saves_.end(), [](const Save& save) { return !save.ended() && save.attention(); });
}

void Saves::OnMember(int rank, JobContext& context) {
  for (Save& save : saves_) {
    if (!save.ended()) save.OnMember(rank, context);
  }
}

void Saves::NoteTold(const Member& member, const JobContext& context) {
  for (Save& save : saves_) {
    if (save.ended()) save.NoteTold(member, context);
  }
}

void Saves::Heard(int rank, const v1::SaveState& asked) {
  const Save* named = FindAsked(rank, asked);
  for (Save& save : saves_) {
    if (&save == named && save.ended()) save.Heard(rank);
  }
}

void Saves::Cancel(const CheckpointKey& key, JobContext& context) {
  for (Save& save : saves_) {
    if (save.ended()) continue;
    if (key.step.has_value() ? save.step() == *key.step : key.request_id.empty() || save.HasRequest(key.request_id)) {
      save.Cancel(context);
    }
  }
}

bool Saves::Advance(JobContext& context) {
  bool moved = false;
  context.earlier_step.reset();
  const Save* earlier = nullptr;
  for (Save& save : saves_) {  // in the order in which they began
    if (save.ended()) {
      save.AnswerOwed(context);
      continue;
    }
    const Save::Phase before = save.phase();
    do {
      save.Advance(context, earlier);
    } while (save.attention() && !save.ended());  // one step makes the next one possible
    moved = moved || save.phase() != before;
    if (!IsUndecided(save)) continue;
    context.earlier_step = std::min(context.earlier_step.value_or(save.step()), save.step());
    if (earlier == nullptr) earlier = &save;
  }
  return moved;
}

std::vector<StoredAttempt> Saves::TakeLeftovers() {
  std::vector<StoredAttempt> leftovers;
  for (Save& save : saves_) {
    if (const auto leftover = save.TakeLeftover(); leftover.has_value()) leftovers.push_back(*leftover);
  }
  return leftovers;
}

std::string Saves::Inconsistency() const {
  for (const Save& save : saves_) {
    if (std::string missed = save.Inconsistency(); !missed.empty()) return missed;
  }
  return "";
}

void Saves::Forget(const Membership& members) {
  for (auto save = saves_.begin(); saves_.size() > kEndedKept && save != saves_.end();) {
    const bool held = members.reporting(save->step()) > 0;
    save = save->ended() && !held ? saves_.erase(save) : std::next(save);
  }
}

}  // namespace cairn

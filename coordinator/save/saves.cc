#include "coordinator/save/saves.h"

#include <algorithm>
#include <utility>

namespace cairn {
namespace {

constexpr size_t kEndedKept = 16;
constexpr size_t kMaxActive = 32;

bool IsUndecided(const Save& save) { return !save.ended() && save.phase() != v1::Phase::ABORTING; }

}  // namespace

Save& Saves::Begin(int64_t step, const JobContext& context) {
  for (Save& previous : saves_) {
    if (previous.step() == step) previous.replies().Drop();
  }
  saves_.emplace_back(step, context.now, context.wall);
  ++begun_;
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

News Saves::OnMember(int rank, const JobContext& context) {
  News news;
  for (Save& save : saves_) news += save.OnMember(rank, context);
  return news;
}

void Saves::NoteTold(const Member& member, absl::Time now) {
  for (Save& save : saves_) {
    if (save.ended()) save.NoteTold(member, now);
  }
}

void Saves::Heard(int rank, const v1::SaveState& asked) {
  const Save* named = FindAsked(rank, asked);
  for (Save& save : saves_) {
    if (&save == named && save.ended()) save.replies().Heard(rank);
  }
}

void Saves::Cancel(const CheckpointKey& key, const JobContext& context) {
  for (Save& save : saves_) {
    if (save.ended()) continue;
    if (key.step.has_value() ? save.step() == *key.step : key.request_id.empty() || save.HasRequest(key.request_id)) {
      save.Cancel(context);
    }
  }
}

News Saves::Advance(const JobContext& context) {
  const auto standing = [this] { return std::pair(EarliestUndecided(), StalledStep()); };
  const auto standing_before = standing();
  News news;
  Save::Before before;
  for (Save& save : saves_) {  // in the order in which they began
    news += save.Advance(before, context);
    news += News{false, News::Orders::kSame, save.replies().Give(context.members, context.now)};
    if (!IsUndecided(save)) continue;
    before.step = std::min(before.step.value_or(save.step()), save.step());
    if (before.first == nullptr) before.first = &save;
  }
  news.step = news.step || standing() != standing_before;
  return news;
}

std::vector<StoredAttempt> Saves::TakeLeftovers() {
  std::vector<StoredAttempt> leftovers;
  for (Save& save : saves_) {
    if (const auto leftover = save.TakeLeftover(); leftover.has_value()) leftovers.push_back(*leftover);
  }
  return leftovers;
}

void Saves::Forget(const Membership& members) {
  for (auto save = saves_.begin(); saves_.size() > kEndedKept && save != saves_.end();) {
    const bool held = members.Reporting(save->step()) > 0;
    save = save->ended() && !held ? saves_.erase(save) : std::next(save);
  }
}

}  // namespace cairn

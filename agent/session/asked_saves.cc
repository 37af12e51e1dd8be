#include "agent/session/asked_saves.h"

#include <algorithm>

namespace cairn {

bool AskedSaves::Ask(const Question& question, uint64_t number) {
  const auto same = [&](const Entry& entry) { return entry.question == question; };
  if (std::any_of(entries_.begin(), entries_.end(), same)) return false;
  if (entries_.size() >= kMost) {
    // An outcome that nobody has come back for can be asked for again.
    const auto oldest =
        std::find_if(entries_.begin(), entries_.end(), [](const Entry& entry) { return entry.answered; });
    if (oldest == entries_.end()) return false;
    entries_.erase(oldest);
  }
  entries_.push_back({question, number, std::nullopt, false});
  return true;
}

std::optional<v1::SaveOrder> AskedSaves::Take(const Question& question) {
  const auto found = std::find_if(entries_.begin(), entries_.end(),
                                  [&](const Entry& entry) { return entry.answered && entry.question == question; });
  if (found == entries_.end()) return std::nullopt;
  std::optional<v1::SaveOrder> answer = std::move(found->last);
  entries_.erase(found);
  return answer;
}

const v1::SaveOrder* AskedSaves::Last(const Question& question) const {
  const auto found =
      std::find_if(entries_.begin(), entries_.end(), [&](const Entry& entry) { return entry.question == question; });
  return found == entries_.end() || !found->last ? nullptr : &*found->last;
}

void AskedSaves::TrainerGone(uint64_t trainer) {
  entries_.remove_if([&](const Entry& entry) { return entry.question.trainer == trainer; });
}

void AskedSaves::AddTo(v1::AgentState& state) const {
  for (const Entry& entry : entries_) {
    if (entry.answered) continue;
    v1::SaveState& asked = *state.add_saves();
    asked.set_step(entry.question.step);
    asked.set_attempt(entry.question.attempt);
    asked.set_save(entry.question.save);
    asked.set_phase(v1::Phase::ASKED);
    asked.set_call(entry.number);
  }
}

bool AskedSaves::Apply(const v1::SaveOrder& order) {
  if (order.call() == 0) return false;
  const auto found =
      std::find_if(entries_.begin(), entries_.end(), [&](const Entry& entry) { return entry.number == order.call(); });
  if (found == entries_.end()) return false;
  const bool outcome = order.phase() == v1::Phase::COMMITTED || order.phase() == v1::Phase::ABORTED;
  if (found->answered || order.step() != found->question.step) return true;
  const uint32_t attempt = found->question.attempt;
  if (outcome && attempt != 0 && order.attempt() != attempt) return true;  // of another attempt
  found->last = order;
  found->answered = outcome || order.phase() == v1::Phase::UNKNOWN;
  return true;
}

}  // namespace cairn

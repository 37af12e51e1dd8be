#include "common/rpc/stranger_table.h"

namespace cairn {

StrangerTable::Admission StrangerTable::Admit(std::string_view group, absl::Time now) {
  Admission admission;
  const std::string name(group);
  if (strangers_.size() >= limits_.most) {
    admission.evicted = Victim(name, now);
    if (!admission.evicted) return admission;
    Remove(*admission.evicted);
  }
  const Number number = ++last_;
  strangers_.emplace(number, Stranger{name, now});
  Group& grown = groups_[name];
  const size_t before = grown.size();
  grown.silent.insert(number);
  silent_.insert(number);
  Resize(name, grown, before);
  admission.admitted = number;
  return admission;
}

std::optional<StrangerTable::Number> StrangerTable::Victim(const std::string& group, absl::Time now) const {
  if (by_size_.empty()) return std::nullopt;
  const auto old_enough = [&](Number number) { return now - strangers_.at(number).since >= limits_.least; };
  const auto own = groups_.find(group);
  const size_t own_size = own == groups_.end() ? 0 : own->second.size();
  const auto& [largest_size, largest_name] = *by_size_.rbegin();
  if (own_size == 0 && largest_size == 1) {
    // Each group has one stranger, so the places are already shared fairly.
    if (!silent_.empty()) return *silent_.begin();
    const Number oldest = strangers_.begin()->first;
    return old_enough(oldest) ? std::optional(oldest) : std::nullopt;
  }
  const Group& largest = own_size + 1 > largest_size ? own->second : groups_.at(largest_name);
  if (!largest.silent.empty()) return *largest.silent.begin();
  const Number oldest = *largest.speaking.begin();
  // With the newcomer, its group must still be smaller than the largest one. Otherwise the oldest stranger keeps its
  // place.
  const bool has_right = own_size + 1 < largest_size;
  return has_right || old_enough(oldest) ? std::optional(oldest) : std::nullopt;
}

void StrangerTable::Spoke(Number number) {
  const auto found = strangers_.find(number);
  if (found == strangers_.end() || !found->second.silent) return;
  found->second.silent = false;
  Group& group = groups_.at(found->second.group);
  group.silent.erase(number);
  silent_.erase(number);
  group.speaking.insert(number);
}

void StrangerTable::Remove(Number number) {
  const auto found = strangers_.find(number);
  if (found == strangers_.end()) return;
  const std::string name = found->second.group;
  const auto group = groups_.find(name);
  const size_t before = group->second.size();
  group->second.silent.erase(number);
  group->second.speaking.erase(number);
  silent_.erase(number);
  strangers_.erase(found);
  Resize(name, group->second, before);
  if (group->second.size() == 0) groups_.erase(group);
}

std::vector<StrangerTable::Number> StrangerTable::TakeExpired(absl::Time now) {
  std::vector<Number> expired;
  while (!strangers_.empty() && NextExpiry() <= now) {
    expired.push_back(strangers_.begin()->first);
    Remove(expired.back());
  }
  return expired;
}

absl::Time StrangerTable::NextExpiry() const {
  return strangers_.empty() ? absl::InfiniteFuture() : strangers_.begin()->second.since + limits_.longest;
}

void StrangerTable::Resize(const std::string& group, const Group& changed, size_t before) {
  by_size_.erase({before, group});
  if (changed.size() > 0) by_size_.insert({changed.size(), group});
}

}  // namespace cairn

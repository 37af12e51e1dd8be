#include "coordinator/decision/plan_table.h"

#include <algorithm>
#include <iterator>

#include "common/base/digest.h"
#include "common/status/reason.h"

namespace cairn {

SavePlanEntry* PlanTable::Request(const std::vector<std::string>& layout, const JobContext& context) {
  ++keys_made_;
  Digester digester;
  std::vector<std::string> node;
  for (size_t rank = 0; rank < layout.size(); ++rank) {
    const Member* member = context.members.Find(static_cast<int>(rank));
    node.push_back(member == nullptr ? "" : member->node);
    digester.Add(layout[rank]).Add(node.back());
  }
  const std::string key = digester.Finish();
  for (auto entry = entries_.begin(); entry != entries_.end(); ++entry) {
    if (entry->key != key) continue;
    entries_.splice(entries_.begin(), entries_, entry);
    return &entries_.front();
  }
  for (const std::string& digest : layout) {
    if (!context.layouts.contains(digest)) return nullptr;
  }
  entries_.emplace_front().key = key;
  HoldExactly(context.layouts, layout, entries_.front().layouts);
  if (entries_.size() > kCapacity) entries_.pop_back();
  context.Do(PlanSave{key, layout, std::move(node)});
  return &entries_.front();
}

void PlanTable::OnPlanned(const std::string& key, const absl::StatusOr<PlannedSave>& plan) {
  const auto entry = std::find_if(entries_.begin(), entries_.end(), [&](const auto& e) { return e.key == key; });
  if (entry == entries_.end() || entry->state != SavePlanEntry::State::kPending) return;
  if (plan.ok()) {
    entry->state = SavePlanEntry::State::kReady;
    entry->plan = *plan;
    return;
  }
  if (HasReason(plan.status(), Reason::kPlanUnknown)) {
    // A layout was evicted meanwhile: it is asked for again.
    entries_.erase(entry);
    return;
  }
  entry->state = SavePlanEntry::State::kFailed;
  entry->error = plan.status();
}

bool PlanTable::ReleaseOldest() {
  const auto oldest = std::find_if(entries_.rbegin(), entries_.rend(),
                                   [](const auto& entry) { return entry.state != SavePlanEntry::State::kPending; });
  if (oldest == entries_.rend()) return false;
  entries_.erase(std::next(oldest).base());
  return true;
}

SavePlanEntry* PlanTable::FindByKey(const std::string& key) {
  const auto entry = std::find_if(entries_.begin(), entries_.end(), [&](const auto& e) { return e.key == key; });
  return entry == entries_.end() ? nullptr : &*entry;
}

SavePlanEntry* PlanTable::Find(const std::string& plan_digest) {
  for (SavePlanEntry& entry : entries_) {
    if (entry.state == SavePlanEntry::State::kReady && entry.plan.plan_digest == plan_digest) return &entry;
  }
  return nullptr;
}

}  // namespace cairn

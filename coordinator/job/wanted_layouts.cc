#include "coordinator/job/wanted_layouts.h"

#include <utility>

namespace cairn {

void WantedLayouts::Apply(const Member& member, const LayoutTable& layouts, OrderBook& orders) {
  const auto at = static_cast<size_t>(member.rank);
  std::vector<std::string> missing;
  for (const LayoutHold& hold : member.layouts) {
    if (!layouts.contains(hold.digest())) missing.push_back(hold.digest());
  }
  if (named_[at] == missing) return;
  OnLost(member.rank, orders);
  for (const std::string& digest : missing) {
    std::set<int>& ranks = wanted_[digest];
    const int asked = ranks.empty() ? -1 : *ranks.begin();
    ranks.insert(member.rank);
    if (asked > member.rank) orders.Wake(asked);
  }
  named_.At(at) = std::move(missing);
}

void WantedLayouts::OnLost(int rank, OrderBook& orders) {
  const auto at = static_cast<size_t>(rank);
  if (named_[at].empty()) return;
  for (const std::string& digest : std::exchange(named_.At(at), {})) {
    const auto wanted = wanted_.find(digest);
    if (wanted == wanted_.end()) continue;
    const bool asked = *wanted->second.begin() == rank;
    wanted->second.erase(rank);
    if (wanted->second.empty()) {
      wanted_.erase(wanted);
    } else if (asked) {
      orders.Wake(*wanted->second.begin());
    }
  }
}

bool WantedLayouts::OnLayout(const std::string& digest, OrderBook& orders) {
  const auto wanted = wanted_.find(digest);
  if (wanted == wanted_.end()) return false;
  orders.Wake(*wanted->second.begin());
  wanted_.erase(wanted);
  return true;
}

void WantedLayouts::AddTo(int rank, v1::SynchronizeAgentResponse& response) const {
  for (const std::string& digest : named_[static_cast<size_t>(rank)]) {
    const auto wanted = wanted_.find(digest);
    if (wanted != wanted_.end() && *wanted->second.begin() == rank) response.add_wanted_layouts(digest);
  }
}

bool WantedLayouts::IsConsistent(const Membership& members, const LayoutTable& layouts) const {
  std::map<std::string, std::set<int>> wanted;
  for (const auto& [rank, member] : members.members()) {
    for (const LayoutHold& hold : member.layouts) {
      if (!layouts.contains(hold.digest())) wanted[hold.digest()].insert(rank);
    }
  }
  return wanted == wanted_;
}

}  // namespace cairn

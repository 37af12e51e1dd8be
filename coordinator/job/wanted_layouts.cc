#include "coordinator/job/wanted_layouts.h"

#include <utility>

namespace cairn {

News WantedLayouts::Apply(const Member& member, const LayoutTable& layouts) {
  const auto at = static_cast<size_t>(member.rank);
  std::vector<std::string> missing;
  for (const LayoutHold& hold : member.layouts) {
    if (!layouts.contains(hold.digest())) missing.push_back(hold.digest());
  }
  if (named_[at] == missing) return {};
  News news = OnLost(member.rank);
  for (const std::string& digest : missing) {
    std::set<int>& ranks = wanted_[digest];
    if (!ranks.empty() && *ranks.begin() > member.rank) news.ranks.push_back(*ranks.begin());
    ranks.insert(member.rank);
  }
  named_.At(at) = std::move(missing);
  return news;
}

News WantedLayouts::OnLost(int rank) {
  const auto at = static_cast<size_t>(rank);
  News news;
  if (named_[at].empty()) return news;
  for (const std::string& digest : std::exchange(named_.At(at), {})) {
    const auto wanted = wanted_.find(digest);
    if (wanted == wanted_.end()) continue;
    const bool asked = *wanted->second.begin() == rank;
    wanted->second.erase(rank);
    if (wanted->second.empty()) {
      wanted_.erase(wanted);
    } else if (asked) {
      news.ranks.push_back(*wanted->second.begin());
    }
  }
  return news;
}

News WantedLayouts::OnLayout(const std::string& digest) {
  News news;
  const auto wanted = wanted_.find(digest);
  if (wanted == wanted_.end()) return news;
  news.ranks.push_back(*wanted->second.begin());
  wanted_.erase(wanted);
  return news;
}

void WantedLayouts::AddTo(int rank, v1::SynchronizeAgentResponse& response) const {
  for (const std::string& digest : named_[static_cast<size_t>(rank)]) {
    const auto wanted = wanted_.find(digest);
    if (wanted != wanted_.end() && *wanted->second.begin() == rank) response.add_wanted_layouts(digest);
  }
}

}  // namespace cairn

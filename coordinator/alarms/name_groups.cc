#include "coordinator/alarms/name_groups.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/name_pattern.h"

namespace cairn {
namespace {

constexpr size_t kMostGroups = 4;
constexpr size_t kMostBytes = 120;  // of one name
constexpr size_t kMostRanks = 8;

std::string Short(const std::string& name) {
  return name.size() <= kMostBytes ? name : absl::StrCat(name.substr(0, kMostBytes), "...");
}

}  // namespace

std::string NameGroups(const std::vector<std::string>& names) {
  struct Group {
    std::string first;
    size_t count = 0;
  };
  std::map<std::string, Group> groups;
  for (const std::string& name : names) {
    Group& group = groups[PatternOf(name)];
    if (group.count++ == 0) group.first = name;
  }
  std::vector<std::pair<std::string, Group>> sorted(groups.begin(), groups.end());
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const auto& a, const auto& b) { return a.second.count > b.second.count; });
  std::string text;
  for (size_t i = 0; i < sorted.size() && i < kMostGroups; ++i) {
    const auto& [pattern, group] = sorted[i];
    absl::StrAppend(&text, text.empty() ? "" : ", ",
                    group.count == 1 ? Short(group.first) : absl::StrCat(Short(pattern), " (", group.count, ")"));
  }
  if (sorted.size() > kMostGroups) absl::StrAppend(&text, " and ", sorted.size() - kMostGroups, " more kinds");
  return text;
}

std::string NamesAndRanks(const StateSummary& state, const std::vector<std::string>& names) {
  std::string text = NameGroups(names);
  if (state.world_size < 2) return text;
  std::vector<bool> wrote(state.world_size);
  size_t count = 0;
  for (const std::string& name : names) {
    const auto tensor = std::ranges::lower_bound(state.tensors, name, {}, &StateSummary::Tensor::name);
    if (tensor == state.tensors.end() || tensor->name != name) continue;
    for (uint32_t k = 0; k < tensor->shard_count && count < wrote.size(); ++k) {
      const auto rank = static_cast<size_t>(state.shards[tensor->first_shard + k].rank);
      if (rank >= wrote.size() || wrote[rank]) continue;
      wrote[rank] = true;
      ++count;
    }
  }
  if (count == 0) return text;
  if (count == wrote.size()) return text + ", written by all ranks";
  std::set<int32_t> ranks;
  for (size_t rank = 0; rank < wrote.size(); ++rank) {
    if (wrote[rank]) ranks.insert(static_cast<int32_t>(rank));
  }
  return absl::StrCat(text, ", written by ", RankNames(ranks));
}

std::string RankNames(const std::set<int32_t>& ranks) {
  const auto end = std::next(ranks.begin(), static_cast<int64_t>(std::min(kMostRanks, ranks.size())));
  std::string text = absl::StrCat(ranks.size() == 1 ? "rank " : "ranks ", absl::StrJoin(ranks.begin(), end, ", "));
  if (ranks.size() > kMostRanks) absl::StrAppend(&text, " and ", ranks.size() - kMostRanks, " more");
  return text;
}

}  // namespace cairn

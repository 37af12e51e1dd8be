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

std::string RankNames(const std::set<int32_t>& ranks) {
  const auto end = std::next(ranks.begin(), static_cast<int64_t>(std::min(kMostRanks, ranks.size())));
  std::string text = absl::StrCat(ranks.size() == 1 ? "rank " : "ranks ", absl::StrJoin(ranks.begin(), end, ", "));
  if (ranks.size() > kMostRanks) absl::StrAppend(&text, " and ", ranks.size() - kMostRanks, " more");
  return text;
}

}  // namespace cairn

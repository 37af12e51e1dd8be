#include "foreign/compare/name_groups.h"

#include <map>
#include <tuple>
#include <utility>

#include "common/base/name_pattern.h"

namespace cairn {
namespace {

// The form of an item; items of one group have equal forms.
std::pair<DType, size_t> FormOf(const std::optional<ComparedItem>& item) {
  return item.has_value() ? std::pair(item->dtype, item->shape.size()) : std::pair(DType::kUnspecified, size_t{0});
}

}  // namespace

std::vector<NameGroup> GroupNames(const std::vector<ComparedName>& names) {
  std::vector<NameGroup> groups;
  using Key = std::tuple<std::string, bool, Difference, std::pair<DType, size_t>, std::pair<DType, size_t>>;
  std::map<Key, size_t> known;  // the index of the group
  for (size_t i = 0; i < names.size(); ++i) {
    const ComparedName& name = names[i];
    if (name.difference == Difference::kNone) continue;
    const std::string pattern = PatternOf(name.name);
    const Key key = {pattern, name.object, name.difference, FormOf(name.first), FormOf(name.second)};
    const auto [at, added] = known.try_emplace(key, groups.size());
    if (added) groups.push_back({.pattern = pattern, .names = {}, .largest = {}});
    NameGroup& group = groups[at->second];
    group.names.push_back(i);
    group.differing += name.differing;
    group.nans += name.nans;
    if (name.largest_difference.has_value() &&
        (!group.largest.has_value() || *name.largest_difference > *names[*group.largest].largest_difference)) {
      group.largest = i;
    }
  }
  return groups;
}

}  // namespace cairn

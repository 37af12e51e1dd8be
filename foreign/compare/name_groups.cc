#include "foreign/compare/name_groups.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "absl/strings/ascii.h"

namespace cairn {
namespace {

bool IsDigit(char c) { return absl::ascii_isdigit(static_cast<unsigned char>(c)); }
bool IsWord(char c) { return absl::ascii_isalnum(static_cast<unsigned char>(c)); }

// The form of an item; items of one group have equal forms.
std::pair<DType, size_t> FormOf(const std::optional<ComparedItem>& item) {
  return item.has_value() ? std::pair(item->dtype, item->shape.size()) : std::pair(DType::kUnspecified, size_t{0});
}

}  // namespace

std::string PatternOf(std::string_view name) {
  std::string pattern;
  for (size_t i = 0; i < name.size();) {
    size_t end = i;
    while (end < name.size() && IsDigit(name[end])) ++end;
    const bool number = end > i && (i == 0 || !IsWord(name[i - 1])) && (end == name.size() || !IsWord(name[end]));
    if (number) {
      pattern += '*';
    } else {
      end = std::max(end, i + 1);
      pattern += name.substr(i, end - i);
    }
    i = end;
  }
  return pattern;
}

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

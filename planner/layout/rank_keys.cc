#include "planner/layout/rank_keys.h"

#include <algorithm>
#include <string>

namespace cairn {
namespace {

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

}  // namespace

bool IsOfAnotherRank(const std::vector<std::string_view>& names, std::string_view name) {
  constexpr std::string_view kRank = "rank";
  for (size_t at = name.find(kRank); at != std::string_view::npos; at = name.find(kRank, at + 1)) {
    size_t digits = at + kRank.size();
    if (digits < name.size() && (name[digits] == '_' || name[digits] == '-')) ++digits;
    size_t end = digits;
    while (end < name.size() && IsDigit(name[end])) ++end;
    const bool begins = at == 0 || name[at - 1] == '.' || name[at - 1] == '_' || name[at - 1] == '-';
    if (!begins || end == digits || (end < name.size() && name[end] != '.')) continue;
    const std::string_view same = name.substr(0, digits);
    const auto other = std::lower_bound(names.begin(), names.end(), std::string(same) + "0");
    if (other != names.end() && other->starts_with(same) && IsDigit((*other)[digits])) return true;
  }
  return false;
}

}  // namespace cairn

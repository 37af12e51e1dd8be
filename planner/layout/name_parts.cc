#include "planner/layout/name_parts.h"

#include <algorithm>
#include <cstddef>
#include <string>

namespace cairn {

bool HasPartsOf(const std::vector<std::string_view>& names, std::string_view whole) {
  const std::string begin = std::string(whole) + '.';
  const auto first = std::lower_bound(names.begin(), names.end(), begin);
  return first != names.end() && first->starts_with(begin);
}

bool IsPartOfAny(const std::vector<std::string_view>& names, std::string_view name) {
  for (size_t dot = name.find('.'); dot != std::string_view::npos; dot = name.find('.', dot + 1)) {
    if (std::binary_search(names.begin(), names.end(), name.substr(0, dot))) return true;
  }
  return false;
}

}  // namespace cairn

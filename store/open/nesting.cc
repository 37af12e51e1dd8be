#include "store/open/nesting.h"

namespace cairn {
namespace {

std::string_view WithoutSlashes(std::string_view name) {
  while (name.size() > 1 && name.ends_with('/')) name.remove_suffix(1);
  return name;
}

bool IsAtOrBelow(std::string_view place, std::string_view top) {
  return place.starts_with(top) && (place.size() == top.size() || top == "/" || place[top.size()] == '/');
}

}  // namespace

bool LieWithinEachOther(std::string_view one, std::string_view other) {
  one = WithoutSlashes(one);
  other = WithoutSlashes(other);
  return IsAtOrBelow(one, other) || IsAtOrBelow(other, one);
}

}  // namespace cairn

// Compares two places by their full names alone. store/posix/nested_root.h looks at directories themselves.
#ifndef CAIRN_STORE_OPEN_NESTING_H_
#define CAIRN_STORE_OPEN_NESTING_H_

#include <string_view>

namespace cairn {

// Returns whether two full names (store/open/place.h) are the same, or one of them names something below the other.
// Slashes at the end of a name are ignored.
bool LieWithinEachOther(std::string_view one, std::string_view other);

}  // namespace cairn

#endif  // CAIRN_STORE_OPEN_NESTING_H_

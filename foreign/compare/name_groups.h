// Groups the names of a comparison that differ only in their numbers, such as those of a model's layers.
#ifndef CAIRN_FOREIGN_COMPARE_NAME_GROUPS_H_
#define CAIRN_FOREIGN_COMPARE_NAME_GROUPS_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "foreign/compare/comparison.h"

namespace cairn {

// Names of one pattern that differ in the same way.
struct NameGroup {
  std::string pattern;
  // Indices of the comparison's names, ascending.
  std::vector<size_t> names;
  // The sum over all of them.
  uint64_t differing = 0;
  uint64_t nans = 0;
  // The index of the name with the largest difference; nothing if none has one.
  std::optional<size_t> largest;
};

// Returns the groups of all names that differ, in the order of their first names. A group has names of one pattern,
// kind and difference, and either of the same dtypes and numbers of dimensions, or of objects.
std::vector<NameGroup> GroupNames(const std::vector<ComparedName>& names);

}  // namespace cairn

#endif  // CAIRN_FOREIGN_COMPARE_NAME_GROUPS_H_

// Groups names that differ only in their numbers, such as those of a model's layers.
#ifndef CAIRN_COMMON_BASE_NAME_PATTERN_H_
#define CAIRN_COMMON_BASE_NAME_PATTERN_H_

#include <string>
#include <string_view>

namespace cairn {

// Returns the name with each number replaced by '*': "layers.*.w" for "layers.12.w". A number is a run of digits with
// neither a letter nor a digit beside it.
std::string PatternOf(std::string_view name);

}  // namespace cairn

#endif  // CAIRN_COMMON_BASE_NAME_PATTERN_H_

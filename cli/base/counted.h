// Returns a number with its noun: "1 file", "2 files".
#ifndef CAIRN_CLI_BASE_COUNTED_H_
#define CAIRN_CLI_BASE_COUNTED_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"

namespace cairn::cli {

// `plural`: the plural of the noun, if it is not the noun and "s".
inline std::string Counted(uint64_t count, std::string_view noun, std::string_view plural = "") {
  if (count == 1) return absl::StrCat("1 ", std::string(noun));
  return plural.empty() ? absl::StrCat(count, " ", std::string(noun), "s")
                        : absl::StrCat(count, " ", std::string(plural));
}

}  // namespace cairn::cli

#endif  // CAIRN_CLI_BASE_COUNTED_H_

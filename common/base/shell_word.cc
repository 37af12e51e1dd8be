#include "common/base/shell_word.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

namespace cairn {

std::string ForShell(std::string_view value) {
  constexpr std::string_view kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_@%+=:,./-";
  if (!value.empty() && value.find_first_not_of(kPlain) == std::string_view::npos) return std::string(value);
  return absl::StrCat("'", absl::StrReplaceAll(std::string(value), {{"'", "'\\''"}}), "'");
}

}  // namespace cairn

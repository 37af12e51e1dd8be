#include "common/base/name_pattern.h"

#include <algorithm>

#include "absl/strings/ascii.h"

namespace cairn {
namespace {

bool IsDigit(char c) { return absl::ascii_isdigit(static_cast<unsigned char>(c)); }
bool IsWord(char c) { return absl::ascii_isalnum(static_cast<unsigned char>(c)); }

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

}  // namespace cairn

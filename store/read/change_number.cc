#include "store/read/change_number.h"

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace cairn {
namespace {

// Nobody counts so far. A number that is not below this was put there by mistake, and does not count.
constexpr uint64_t kEnd = uint64_t{1} << 62;

}  // namespace

ChangeNumber NextChange(const ChangeNumber& last, uint64_t epoch, absl::Time now) {
  // Within an epoch one process makes the changes, and a change takes longer than the clock's unit.
  const ChangeNumber by_clock = {epoch, static_cast<uint64_t>(std::max<int64_t>(1, absl::ToUnixMicros(now)))};
  const bool is_last = last.count + 1 >= kEnd;  // of its epoch
  return std::max(by_clock, is_last ? ChangeNumber{last.epoch + 1, 1} : ChangeNumber{last.epoch, last.count + 1});
}

std::string ToString(const ChangeNumber& number) { return absl::StrCat(number.epoch, "-", number.count); }

std::optional<ChangeNumber> ParseChangeNumber(std::string_view text) {
  const size_t dash = text.find('-');
  ChangeNumber number;
  if (dash == text.npos || !absl::SimpleAtoi(std::string(text.substr(0, dash)), &number.epoch) ||
      !absl::SimpleAtoi(std::string(text.substr(dash + 1)), &number.count) || number.epoch >= kEnd ||
      number.count >= kEnd || ToString(number) != text) {
    return std::nullopt;
  }
  return number;
}

}  // namespace cairn

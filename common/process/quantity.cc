#include "common/process/quantity.h"

#include <array>
#include <cmath>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/status/reason.h"
#include "common/status/status.h"

namespace cairn {
namespace {

constexpr std::array<std::pair<std::string_view, int64_t>, 10> kUnits = {{{"", 1},
                                                                          {"B", 1},
                                                                          {"KiB", int64_t{1} << 10},
                                                                          {"MiB", int64_t{1} << 20},
                                                                          {"GiB", int64_t{1} << 30},
                                                                          {"TiB", int64_t{1} << 40},
                                                                          {"KB", 1'000},
                                                                          {"MB", 1'000'000},
                                                                          {"GB", 1'000'000'000},
                                                                          {"TB", 1'000'000'000'000}}};

}  // namespace

absl::StatusOr<absl::Duration> ParseDuration(std::string_view text) {
  absl::Duration duration;
  if (!absl::ParseDuration(absl::string_view(text.data(), text.size()), &duration) || duration < absl::ZeroDuration() ||
      duration == absl::InfiniteDuration()) {
    return MakeError(Reason::kBadQuantity,
                     absl::StrCat("\"", std::string(text), "\" is no duration such as 90s or 10m"));
  }
  return duration;
}

absl::StatusOr<absl::Duration> ParseDurationOf(std::string_view flag, std::string_view text) {
  auto duration = ParseDuration(text);
  if (!duration.ok()) return Annotate(duration.status(), flag);
  return duration;
}

absl::StatusOr<int64_t> ParseSize(std::string_view text) {
  const size_t digits = std::min(text.find_first_not_of("0123456789."), text.size());
  std::string_view unit = text.substr(digits);
  while (!unit.empty() && unit.front() == ' ') unit.remove_prefix(1);
  for (const auto& [name, bytes] : kUnits) {
    if (unit != name) continue;
    const absl::string_view number(text.data(), digits);
    int64_t whole;
    double value;
    if (absl::SimpleAtoi(number, &whole) && whole >= 0 && whole <= INT64_MAX / bytes) return whole * bytes;
    if (!absl::SimpleAtod(number, &value) || !(value * static_cast<double>(bytes) < 9.2e18)) break;
    return static_cast<int64_t>(std::llround(value * static_cast<double>(bytes)));
  }
  return MakeError(Reason::kBadQuantity, absl::StrCat("\"", std::string(text), "\" is no size such as 512MiB or 5GB"));
}

std::string FormatSize(int64_t bytes) {
  static constexpr const char* kNames[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  while (std::abs(value) >= 1000 && unit + 1 < std::size(kNames)) {
    value /= 1024;
    ++unit;
  }
  if (unit == 0) return absl::StrCat(bytes, " B");
  return absl::StrFormat("%.*f %s", value < 10 ? 2 : value < 100 ? 1 : 0, value, kNames[unit]);
}

}  // namespace cairn

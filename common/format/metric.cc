#include "common/format/metric.h"

#include <algorithm>
#include <bit>
#include <cstdint>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/status/reason.h"

namespace cairn {
namespace {

constexpr size_t kMaxNameBytes = 100;
constexpr std::string_view kMin = ":min";
constexpr std::string_view kMax = ":max";

bool IsFirst(char c) { return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_'; }

}  // namespace

bool Metric::operator==(const Metric& other) const {
  return name == other.name && std::bit_cast<uint64_t>(value) == std::bit_cast<uint64_t>(other.value);
}

bool IsMetricName(std::string_view name) {
  return !name.empty() && name.size() <= kMaxNameBytes && IsFirst(name.front()) &&
         std::all_of(name.begin(), name.end(), [](char c) { return IsFirst(c) || c == '.' || c == '/' || c == '-'; });
}

absl::StatusOr<BestRule> ParseBestRule(std::string_view text) {
  BestRule rule;
  rule.highest = text.ends_with(kMax);
  if (rule.highest || text.ends_with(kMin)) rule.metric = std::string(text.substr(0, text.size() - kMax.size()));
  if (IsMetricName(rule.metric)) return rule;
  return MakeError(Reason::kBadRequest,
                   absl::StrCat("\"", absl::CHexEscape(std::string(text.substr(0, 2 * kMaxNameBytes))),
                                "\" does not say which checkpoint is the best: write METRIC:min or METRIC:max, for "
                                "example loss:min"));
}

std::string ToString(const BestRule& rule) {
  return absl::StrCat(rule.metric, std::string(rule.highest ? kMax : kMin));
}

}  // namespace cairn

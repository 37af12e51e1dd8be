#include "coordinator/alarms/alarm_policy.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/format/alarm.h"
#include "common/status/reason.h"

namespace cairn {
namespace {

std::optional<AlarmPolicy::Level> LevelFromName(std::string_view name) {
  if (name == "off") return AlarmPolicy::Level::kOff;
  if (name == "warn") return AlarmPolicy::Level::kWarn;
  if (name == "fail") return AlarmPolicy::Level::kFail;
  return std::nullopt;
}

absl::Status Refuse(const std::string& word) {
  std::vector<std::string> kinds;
  for (const AlarmInfo& info : AlarmTable()) kinds.emplace_back(info.kind);
  return MakeError(Reason::kBadRequest,
                   absl::StrCat("--alarms: \"", word, "\" is not off, warn or fail, nor KIND=LEVEL with one of these"),
                   {{"next", absl::StrCat("The kinds are ", absl::StrJoin(kinds, ", "), ".")}});
}

}  // namespace

absl::StatusOr<AlarmPolicy> AlarmPolicy::Parse(std::string_view text) {
  AlarmPolicy policy;
  const std::vector<std::string> words = absl::StrSplit(absl::string_view(text.data(), text.size()), ',');
  for (const std::string& word : words) {
    const size_t equals = word.find('=');
    if (equals == std::string::npos) {
      const std::optional<Level> level = LevelFromName(word);
      if (!level.has_value()) return Refuse(word);
      policy.all_ = *level;
      continue;
    }
    const std::string kind = word.substr(0, equals);
    const std::optional<Level> level = LevelFromName(word.substr(equals + 1));
    const auto table = AlarmTable();
    const bool known =
        std::any_of(table.begin(), table.end(), [&](const AlarmInfo& info) { return info.kind == kind; });
    if (!level.has_value() || !known) return Refuse(word);
    policy.kinds_[kind] = *level;
  }
  return policy;
}

AlarmPolicy::Level AlarmPolicy::LevelOf(std::string_view kind) const {
  const auto found = kinds_.find(kind);
  return found == kinds_.end() ? all_ : found->second;
}

bool AlarmPolicy::wanted() const {
  return all_ != Level::kOff ||
         std::any_of(kinds_.begin(), kinds_.end(), [](const auto& kind) { return kind.second != Level::kOff; });
}

}  // namespace cairn

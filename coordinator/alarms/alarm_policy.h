// What the operator wants to happen when something in a saved state looks wrong (--alarms).
#ifndef CAIRN_COORDINATOR_ALARMS_ALARM_POLICY_H_
#define CAIRN_COORDINATOR_ALARMS_ALARM_POLICY_H_

#include <map>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace cairn {

// A value type.
class AlarmPolicy {
 public:
  enum class Level {
    kOff,
    kWarn,
    kFail,  // the checkpoint is kept, and whoever waits for the save gets an error
  };

  // All kinds have the level kWarn.
  AlarmPolicy() = default;
  // Reads "off", "warn", "fail", or a list with a level for some kinds, such as "warn,jump=off,non_finite=fail"; the
  // others have the level that stands alone, or "warn". INVALID_ARGUMENT (BAD_REQUEST).
  static absl::StatusOr<AlarmPolicy> Parse(std::string_view text);

  Level LevelOf(std::string_view kind) const;
  // Returns false if no kind is wanted, so that nothing need be computed.
  bool wanted() const;

 private:
  Level all_ = Level::kWarn;
  std::map<std::string, Level, std::less<>> kinds_;
};

}  // namespace cairn

#endif  // CAIRN_COORDINATOR_ALARMS_ALARM_POLICY_H_

// Says that something in the state of a committed checkpoint looks wrong. docs/trust.md explains each kind.
#ifndef CAIRN_COMMON_FORMAT_ALARM_H_
#define CAIRN_COMMON_FORMAT_ALARM_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace cairn {

// The kinds, under their names on disk.
namespace alarm {
inline constexpr std::string_view kReplicasDiffer = "replicas_differ";
inline constexpr std::string_view kSameStep = "same_step";
inline constexpr std::string_view kStaleRank = "stale_rank";
inline constexpr std::string_view kStaleTensor = "stale_tensor";
inline constexpr std::string_view kFrozenOptimizer = "frozen_optimizer";
inline constexpr std::string_view kReturned = "returned";
inline constexpr std::string_view kWrongPlace = "wrong_place";
inline constexpr std::string_view kUntied = "untied";
inline constexpr std::string_view kZeroMoments = "zero_moments";
inline constexpr std::string_view kNonFinite = "non_finite";
inline constexpr std::string_view kJump = "jump";
inline constexpr std::string_view kStateDrift = "state_drift";
inline constexpr std::string_view kCounterStopped = "counter_stopped";
inline constexpr std::string_view kEqualTensors = "equal_tensors";
}  // namespace alarm

struct AlarmInfo {
  std::string_view kind;
  std::string_view next;  // what to do
};

// Returns all kinds.
std::span<const AlarmInfo> AlarmTable();

struct Alarm {
  // One of `alarm`, or that of a later version.
  std::string kind;
  // Names the tensors, the ranks and the earlier step.
  std::string message;

  bool operator==(const Alarm&) const = default;
};

// FAILED_PRECONDITION (STATE_ALARM, or REPLICA_MISMATCH for that kind). The metadata have "alarm", the kind.
absl::Status AlarmStatus(const Alarm& alarm, const std::string& job, int64_t step);

}  // namespace cairn

#endif  // CAIRN_COMMON_FORMAT_ALARM_H_

// A rank's part of a plan begins with the plan's digest. The rest is equal in two plans if the rank has the same to do
// in both. So if one rank's layout changes, the others need not be sent a new part.
#ifndef CAIRN_COMMON_RPC_PLAN_PART_H_
#define CAIRN_COMMON_RPC_PLAN_PART_H_

#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "cairn/v1/plan.pb.h"

namespace cairn {

// Returns what follows the plan's digest in a serialized WritePlan or ReadPlan; nothing if the part does not begin with
// one.
std::optional<std::string_view> BodyOfPart(std::string_view part);

// Returns the digest of the body; empty if there is none.
std::string BodyDigestOf(std::string_view part);

// Returns the part that has the same body in the plan of this digest (32 bytes). `part` must have a body.
std::string PartOfPlan(std::string_view plan_digest, std::string_view part);

// Parses a rank's part of a load plan. The shared objects, which come packed, stand in `objects` and `copies` then,
// where the others are. INTERNAL: it is none, or its shared objects contradict themselves.
absl::StatusOr<v1::ReadPlan> ParseReadPlan(std::string_view part);

}  // namespace cairn

#endif  // CAIRN_COMMON_RPC_PLAN_PART_H_

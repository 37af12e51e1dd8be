// Splits and joins a rank's part of a plan, which is the plan's digest and a body. The body is equal in two plans if
// the rank does the same in both. So when one rank's layout changes, the other ranks do not need new bodies.
#ifndef CAIRN_COMMON_RPC_PLAN_PART_H_
#define CAIRN_COMMON_RPC_PLAN_PART_H_

#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "cairn/v1/plan.pb.h"

namespace cairn {

// Returns the bytes behind the plan's digest in a serialized WritePlan or ReadPlan; nothing if it has no digest.
std::optional<std::string_view> BodyOfPart(std::string_view part);

// Returns the digest of the body; empty if there is no body.
std::string BodyDigestOf(std::string_view part);

// Returns a part with the body of `part` and another plan's digest (32 bytes). `part` must have a body.
std::string PartOfPlan(std::string_view plan_digest, std::string_view part);

// Parses a rank's part of a load plan. Shared objects are packed in the part; this unpacks them into `objects` and
// `copies`. INTERNAL: the bytes are no ReadPlan, or its shared objects contradict each other.
absl::StatusOr<v1::ReadPlan> ParseReadPlan(std::string_view part);

}  // namespace cairn

#endif  // CAIRN_COMMON_RPC_PLAN_PART_H_

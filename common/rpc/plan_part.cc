#include "common/rpc/plan_part.h"

#include "cairn/v1/plan.pb.h"
#include "common/base/digest.h"

namespace cairn {
namespace {

// Both kinds of parts must have the digest in the same field: its tag with the wire type for bytes, then its length.
static_assert(int{v1::WritePlan::kPlanDigestFieldNumber} == int{v1::ReadPlan::kPlanDigestFieldNumber});
constexpr char kBegin[] = {v1::WritePlan::kPlanDigestFieldNumber << 3 | 2, static_cast<char>(kDigestBytes)};
constexpr size_t kBodyAt = sizeof(kBegin) + kDigestBytes;

}  // namespace

std::optional<std::string_view> BodyOfPart(std::string_view part) {
  if (part.size() < kBodyAt || part.substr(0, sizeof(kBegin)) != std::string_view(kBegin, sizeof(kBegin))) {
    return std::nullopt;
  }
  return part.substr(kBodyAt);
}

std::string BodyDigestOf(std::string_view part) {
  const auto body = BodyOfPart(part);
  return body ? Digest(*body) : std::string();
}

std::string PartOfPlan(std::string_view plan_digest, std::string_view part) {
  std::string made(kBegin, sizeof(kBegin));
  made += plan_digest;
  made += *BodyOfPart(part);
  return made;
}

}  // namespace cairn

#include "common/rpc/plan_part.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/base/digest.h"
#include "common/status/reason.h"
#include "common/status/status.h"

namespace cairn {
namespace {

// Both kinds of parts must have the digest in the same field: its tag with the wire type for bytes, then its length.
static_assert(int{v1::WritePlan::kPlanDigestFieldNumber} == int{v1::ReadPlan::kPlanDigestFieldNumber});
constexpr char kBegin[] = {v1::WritePlan::kPlanDigestFieldNumber << 3 | 2, static_cast<char>(kDigestBytes)};
constexpr size_t kBodyAt = sizeof(kBegin) + kDigestBytes;

absl::Status Malformed(absl::string_view what) {
  return MakeError(Reason::kInternal, absl::StrCat("a part of a load plan cannot be read: ", what));
}

absl::Status UnpackObjects(const v1::SharedObjects& shared, v1::ReadPlan& plan) {
  for (const v1::SharedObjectGroup& group : shared.groups()) {
    if (group.per_rank() ? group.ranks_size() != group.bytes_size() : group.ranks_size() != 0) {
      return Malformed("an object without its rank");
    }
    for (int i = 0; i < group.bytes_size(); ++i) {
      v1::ReadObject& object = *plan.add_objects();
      object.set_name(group.name());
      object.set_bytes(group.bytes(i));
      object.set_per_rank(group.per_rank());
      if (group.per_rank()) object.set_rank(group.ranks(i));
    }
  }
  return absl::OkStatus();
}

// `first`: where the shared objects begin in plan.objects.
absl::Status UnpackCopies(const v1::SharedObjects& shared, int first, v1::ReadPlan& plan) {
  const auto objects = static_cast<uint32_t>(plan.objects_size() - first);
  for (const v1::SharedRun& run : shared.runs()) {
    const auto size = static_cast<uint32_t>(run.source_offsets_size());
    if (run.first_object() > objects || size > objects - run.first_object()) return Malformed("a copy of no object");
    for (uint32_t i = 0; i < size; ++i) {
      const uint32_t object = run.first_object() + i;
      v1::Copy& copy = *plan.add_copies();
      copy.set_source_rank(run.source_rank());
      copy.set_round(run.round());
      copy.set_source_offset(run.source_offsets(static_cast<int>(i)));
      copy.set_target(plan.first_shared_target() + object);
      copy.set_element_bytes(plan.objects(first + static_cast<int>(object)).bytes());
    }
  }
  for (const v1::Copy& piece : shared.pieces()) {
    if (piece.target() >= objects) return Malformed("a copy of no object");
    v1::Copy& copy = *plan.add_copies() = piece;
    copy.set_target(plan.first_shared_target() + piece.target());
  }
  return absl::OkStatus();
}

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

absl::StatusOr<v1::ReadPlan> ParseReadPlan(std::string_view part) {
  v1::ReadPlan plan;
  if (!plan.ParseFromArray(part.data(), static_cast<int>(part.size()))) return Malformed("it is no message");
  if (!plan.has_shared_objects()) return plan;
  v1::SharedObjects shared;
  shared.Swap(plan.mutable_shared_objects());
  plan.clear_shared_objects();
  const int first = plan.objects_size();
  CAIRN_RETURN_IF_ERROR(UnpackObjects(shared, plan));
  CAIRN_RETURN_IF_ERROR(UnpackCopies(shared, first, plan));
  std::stable_sort(plan.mutable_copies()->pointer_begin(), plan.mutable_copies()->pointer_end(),
                   [](const v1::Copy* a, const v1::Copy* b) {
                     return std::pair(a->round(), a->source_rank()) < std::pair(b->round(), b->source_rank());
                   });
  return plan;
}

}  // namespace cairn

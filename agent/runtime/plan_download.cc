#include "agent/runtime/plan_download.h"

#include "absl/strings/str_cat.h"
#include "common/rpc/plan_part.h"
#include "common/status/reason.h"

namespace cairn {

PlanDownload::PlanDownload(std::string digest, std::string known)
    : digest_(std::move(digest)), known_(std::move(known)), known_digest_(BodyDigestOf(known_)) {}

v1::GetPlanRequest PlanDownload::Next() const {
  v1::GetPlanRequest request;
  request.set_plan_digest(digest_);
  request.set_offset(plan_.size());
  if (plan_.empty()) request.set_known_part_digest(known_digest_);
  return request;
}

absl::Status PlanDownload::Take(const v1::GetPlanResponse& response) {
  if (response.same_part()) {
    if (known_digest_.empty() || !plan_.empty()) {
      return MakeError(Reason::kInternal, "the coordinator says that the plan is one that was not named");
    }
    plan_ = PartOfPlan(digest_, known_);
    done_ = true;
    return absl::OkStatus();
  }
  if (total_ == 0) total_ = response.total_bytes();
  const uint64_t have = plan_.size() + response.chunk().size();
  if (response.total_bytes() != total_ || total_ > kMaxPlanBytes || have > total_ ||
      (response.chunk().empty() && have < total_)) {
    return MakeError(Reason::kInternal, absl::StrCat("the plan's chunk at ", plan_.size(), " of ",
                                                     response.total_bytes(), " bytes does not fit the others"));
  }
  plan_ += response.chunk();
  done_ = have == total_;
  return absl::OkStatus();
}

}  // namespace cairn

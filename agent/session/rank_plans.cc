#include "agent/session/rank_plans.h"

#include "absl/strings/str_cat.h"
#include "cairn/v1/plan.pb.h"
#include "common/base/digest.h"
#include "common/status/reason.h"
#include "common/status/status.h"

namespace cairn {
namespace {

// Besides those in use.
constexpr size_t kKeptPlans = 8;

}  // namespace

const std::string* RankPlans::Want(const std::string& digest, const std::string& known) {
  const auto plan = plans_.find(digest);
  if (plan != plans_.end()) return &plan->second;
  if (!digest.empty() && gets_.insert(digest).second) {
    const auto last = plans_.find(known);
    context_.Do(action::GetPlan{digest, last == plans_.end() ? "" : last->second});
  }
  return nullptr;
}

absl::StatusOr<SaveImagePtr> RankPlans::WantImage(const std::string& plan_digest, const RankLayoutPtr& layout) {
  // A coordinator that has lost a plan may still name it: what is in use here needs no fetching.
  if (newest_ && newest_->plan_digest == plan_digest && newest_->layout->digest == layout->digest) return newest_;
  const auto image = images_.find(plan_digest);
  if (image != images_.end() && image->second->layout->digest == layout->digest) return image->second;
  const std::string* bytes = Want(plan_digest, newest_ ? newest_->plan_digest : "");
  if (bytes == nullptr) return nullptr;
  v1::WritePlan plan;
  if (!plan.ParseFromString(*bytes) || plan.plan_digest() != plan_digest || plan.rank() != context_.options.rank) {
    return MakeError(Reason::kInternal,
                     absl::StrCat("rank ", context_.options.rank, ": the coordinator sent something else for plan ",
                                  DigestHex(plan_digest).substr(0, 12)));
  }
  CAIRN_ASSIGN_OR_RETURN(SaveImagePtr made, MakeSaveImage(layout, plan));
  images_[plan_digest] = made;
  return made;
}

std::optional<PeerMap> RankPlans::WantPeers(const std::vector<uint32_t>& ranks) {
  std::optional<PeerMap> known = peers_.Find(ranks);
  if (known.has_value()) return known;
  for (std::vector<uint32_t>& request : peers_.Ask(ranks)) context_.Do(action::GetPeers{std::move(request)});
  return std::nullopt;
}

bool RankPlans::OnPlan(const std::string& digest, absl::StatusOr<std::string> bytes) {
  gets_.erase(digest);
  // If it failed (another plan has taken its place, or the coordinator restarted), the next orders say what to fetch.
  if (!bytes.ok()) return false;
  if (plans_.insert_or_assign(digest, *std::move(bytes)).second) order_.push_back(digest);
  while (order_.size() > kKeptPlans) {
    plans_.erase(order_.front());
    images_.erase(order_.front());
    order_.pop_front();
  }
  return true;
}

bool RankPlans::OnPeers(const std::vector<uint32_t>& ranks,
                        const absl::StatusOr<v1::GetTransferPeersResponse>& answer) {
  peers_.Answer(ranks, answer);
  return answer.ok();  // if it failed, they are asked for again after the next orders
}

}  // namespace cairn

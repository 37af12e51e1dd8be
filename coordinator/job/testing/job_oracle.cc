#include "coordinator/job/testing/job_oracle.h"

#include <algorithm>
#include <set>
#include <vector>

#include "absl/strings/str_cat.h"

namespace cairn {
namespace {

std::string Miscounted(const Membership& members) {
  size_t present = 0, reported = 0, with_layout = 0;
  std::vector<int> asking;
  for (const auto& [rank, member] : members.members()) {
    ++present;
    reported += member.reported ? 1 : 0;
    with_layout += member.reported && !member.state.trainer().layout_digest().empty() ? 1 : 0;
    if (!member.asked.empty()) asking.push_back(rank);
  }
  const bool all_reported = members.complete() && reported == present;
  const bool right = present == members.size() && with_layout == members.with_layout() &&
                     all_reported == members.all_reported() && asking == members.Asking();
  return right ? "" : "the members are not counted as they are";
}

// Returns the layouts that each rank is to be asked for: those that are missing and that no lower rank names.
std::map<int, std::set<std::string>> WantedOf(const Membership& members, const LayoutTable& layouts) {
  std::map<int, std::set<std::string>> wanted;
  std::set<std::string> asked;
  for (const auto& [rank, member] : members.members()) {
    for (const LayoutHold& hold : member.layouts) {
      if (!layouts.contains(hold.digest()) && asked.insert(hold.digest()).second) wanted[rank].insert(hold.digest());
    }
  }
  return wanted;
}

}  // namespace

std::string JobOracle::Missed(Job& job, const LayoutTable& layouts, const Moment& settled) {
  std::string missed = Miscounted(job.members());
  if (missed.empty()) missed = MissedOrders(job, layouts, settled);
  if (missed.empty()) missed = MissedStep(job, settled);
  return missed.empty() ? "" : absl::StrCat(job.name(), ": ", missed);
}

std::string JobOracle::MissedStep(Job& job, const Moment& settled) const {
  job.Review(settled);
  const Effects effects = job.TakeEffects();
  const Job::Woken woken = job.TakeWoken();
  const std::string what = "a step was possible and not taken: ";
  if (!effects.log.empty()) return absl::StrCat(what, effects.log.back().Text());
  if (!effects.actions.empty()) return absl::StrCat(what, "an action follows");
  // Those that ask about an outcome are told again and again.
  const std::vector<int> asking = job.members().Asking();
  const bool tells = std::any_of(woken.ranks.begin(), woken.ranks.end(), [&](int rank) {
    return std::find(asking.begin(), asking.end(), rank) == asking.end();
  });
  return woken.all || tells ? absl::StrCat(what, "orders change") : "";
}

std::string JobOracle::MissedOrders(Job& job, const LayoutTable& layouts, const Moment& settled) {
  const auto wanted = WantedOf(job.members(), layouts);
  for (const auto& [rank, member] : job.members().members()) {
    const auto told = told_.find(rank);
    const bool asleep = told != told_.end() && job.KnowsOrders(rank, told->second);
    const v1::SynchronizeAgentResponse orders = job.OrdersFor(rank, settled);
    if (asleep && orders.revision() > told->second) {
      return absl::StrCat("rank ", rank, " is not told what is new to it: ", orders.ShortDebugString());
    }
    told_[rank] = orders.revision();
    const auto of_rank = wanted.find(rank);
    const std::set<std::string> asked(orders.wanted_layouts().begin(), orders.wanted_layouts().end());
    if (asked != (of_rank == wanted.end() ? std::set<std::string>() : of_rank->second)) {
      return absl::StrCat("rank ", rank, " is not asked for the layouts that are missing");
    }
  }
  return "";
}

}  // namespace cairn

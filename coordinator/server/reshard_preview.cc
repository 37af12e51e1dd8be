#include "coordinator/server/reshard_preview.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/digest.h"
#include "common/status/fault.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "planner/load/load_plan.h"

namespace cairn {
namespace {

constexpr uint64_t kRoundBytes = uint64_t{32} << 20;  // as agents'
// Names of each kind that are answered.
constexpr int kMaxNames = 1000;

// Layouts as the planner takes them, which looks at the request's own bytes.
struct Inputs {
  std::vector<std::string> digests;
  std::vector<RankInput> ranks;
};

absl::Status Collect(const google::protobuf::RepeatedPtrField<v1::RankLayouts>& entries, std::string_view what,
                     Inputs& inputs) {
  inputs.digests.reserve(static_cast<size_t>(entries.size()));
  std::set<uint32_t> seen;
  for (const v1::RankLayouts& entry : entries) {
    inputs.digests.push_back(Digest(entry.layout()));
    for (uint32_t rank : entry.ranks()) {
      if (rank > INT32_MAX || !seen.insert(rank).second) {
        return MakeError(Reason::kBadRequest,
                         absl::StrCat(absl::string_view(what.data(), what.size()), ": rank ", rank,
                                      rank > INT32_MAX ? " is out of range" : " stands in two entries"),
                         {{"rank", absl::StrCat(rank)}});
      }
      inputs.ranks.push_back({static_cast<int>(rank), entry.node(), entry.layout(), inputs.digests.back()});
    }
  }
  return absl::OkStatus();
}

void Tell(const FaultList& faults, v1::PlanReshardResponse& response) {
  response.set_fault_count(static_cast<uint32_t>(faults.total()));
  for (const Fault& fault : faults.faults()) {
    v1::PlanFault& out = *response.add_faults();
    out.set_reason(std::string(InfoOf(fault.reason).name));
    out.set_name(fault.name);
    for (int rank : fault.ranks) out.add_ranks(static_cast<uint32_t>(rank));
    for (int64_t offset : fault.offset) out.add_offset(offset);
    for (int64_t size : fault.shape) out.add_shape(size);
    out.set_message(fault.message);
  }
}

void Tell(const LoadPlan& plan, v1::PlanReshardResponse& response) {
  response.set_unique_bytes(plan.unique_bytes());
  response.set_read_bytes(plan.unique_bytes());
  std::map<int, v1::ReshardRank> ranks;
  for (int rank : plan.ranks()) {
    ranks[rank].set_rank(static_cast<uint32_t>(rank));
    ranks[rank].set_plan_bytes(plan.PartFor(rank).size());
  }
  for (const LoadTotals::RankFile& read : plan.totals().reads) {
    ranks[read.rank].set_read_bytes(ranks[read.rank].read_bytes() + read.bytes);
  }
  uint64_t copied = 0;
  for (const LoadTotals::RankPair& pair : plan.totals().copies) {
    v1::ReshardRank& from = ranks[pair.from];
    v1::ReshardRank& to = ranks[pair.to];
    from.set_sent_bytes(from.sent_bytes() + pair.bytes);
    from.set_fan_out(from.fan_out() + 1);
    to.set_received_bytes(to.received_bytes() + pair.bytes);
    to.set_fan_in(to.fan_in() + 1);
    copied += pair.bytes;
  }
  response.set_copy_bytes(copied);
  for (auto& [rank, entry] : ranks) response.add_ranks()->Swap(&entry);
  for (const std::string& name : plan.missing()) {
    if (response.missing_names_size() < kMaxNames) response.add_missing_names(name);
  }
  for (const std::string& name : plan.unexpected()) {
    if (response.unexpected_names_size() < kMaxNames) response.add_unexpected_names(name);
  }
}

}  // namespace

absl::StatusOr<v1::PlanReshardResponse> PreviewReshard(const v1::PlanReshardRequest& request,
                                                       const Manifest* checkpoint) {
  Inputs sources, targets;
  CAIRN_RETURN_IF_ERROR(Collect(request.sources(), "source", sources));
  CAIRN_RETURN_IF_ERROR(Collect(request.targets(), "target", targets));
  if (targets.ranks.empty()) return MakeError(Reason::kBadRequest, "no rank of the target is given");
  v1::PlanReshardResponse response;
  LoadOptions options;
  FaultList faults;
  options.round_bytes =
      request.round_bytes() == 0 ? kRoundBytes : std::max<uint64_t>(request.round_bytes(), kMinRoundBytes);
  if (checkpoint != nullptr) {
    const auto plan = MakeLoadPlan(*checkpoint, targets.ranks, options, faults);
    if (plan.ok()) Tell(*plan, response);
  } else {
    const auto plan = MakeReshardPlan(sources.ranks, targets.ranks, options, faults);
    if (plan.ok()) Tell(plan->load, response);
  }
  Tell(faults, response);
  return response;
}

}  // namespace cairn

#include "planner/save/save_plan.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/digest.h"
#include "planner/layout/layout_set.h"
#include "planner/layout/validation.h"
#include "planner/save/save_plan_impl.h"

namespace cairn {

const std::string& SavePlan::digest() const { return impl_->digest; }
const std::vector<int>& SavePlan::ranks() const { return impl_->set->ranks(); }

uint64_t SavePlan::total_bytes() const {
  uint64_t bytes = 0;
  for (const PlanFile& file : impl_->files) bytes += file.header_bytes + file.data_bytes;
  return bytes;
}

uint64_t SavePlan::unique_bytes() const {
  uint64_t bytes = 0;
  for (const PlanFile& file : impl_->files) bytes += file.data_bytes;
  return bytes;
}

std::vector<uint64_t> SavePlan::rank_bytes() const { return impl_->writers.load; }

uint64_t SavePlan::SoleBytes(int rank) const {
  const auto r = impl_->IndexOf(rank);
  uint64_t bytes = 0;
  if (!r) return bytes;
  for (const PlanFile& file : impl_->FilesOf(*r)) {
    for (const ItemRef& ref : file.items) {
      bool sole = (ref.index & kObjectBit) && impl_->ObjectOf(ref, file.rank_index).per_rank;
      if (!(ref.index & kObjectBit)) {
        const auto holders = impl_->set->HoldersOf(ref.index);
        sole =
            holders.size() == 1 && impl_->set->layouts()[holders[0]].rank_indices == std::vector<int>{file.rank_index};
      }
      if (sole) bytes += impl_->BytesOf(ref, file.rank_index);
    }
  }
  return bytes;
}

std::vector<std::string> SavePlan::names() const {
  std::vector<std::string> names;
  for (const LayoutSet::Tensor& tensor : impl_->set->tensors()) names.push_back(tensor.name);
  for (const LayoutSet::Object& object : impl_->set->objects()) names.push_back(object.name);
  for (const LayoutSet::Alias& alias : impl_->set->aliases()) names.push_back(alias.name);
  std::sort(names.begin(), names.end());
  return names;
}

std::vector<std::string> SavePlan::object_names() const {
  std::vector<std::string> names;
  for (const LayoutSet::Object& object : impl_->set->objects()) names.push_back(object.name);
  std::sort(names.begin(), names.end());
  return names;
}

std::string SavePlan::PartFor(int rank) const {
  const auto r = impl_->IndexOf(rank);
  return r ? impl_->Part(*r) : std::string();
}

std::vector<PlannedFileView> SavePlan::Files() const {
  std::vector<PlannedFileView> views;
  for (const PlanFile& file : impl_->files) {
    PlannedFileView& view = views.emplace_back();
    view.rank = ranks()[static_cast<size_t>(file.rank_index)];
    view.bin = static_cast<int>(file.bin);
    view.name = impl_->NameOf(file);
    view.header_bytes = file.header_bytes;
    view.data_bytes = file.data_bytes;
    uint64_t offset = file.header_bytes;
    for (const ItemRef& ref : file.items) {
      view.items.push_back({impl_->ItemOf(ref, file.rank_index), offset});
      offset += impl_->BytesOf(ref, file.rank_index);
    }
  }
  return views;
}

std::vector<PlannedMove> SavePlan::Moves() const {
  std::vector<PlannedMove> moves;
  for (const Writers::Move& move : impl_->writers.moves) {
    moves.push_back({ranks()[static_cast<size_t>(move.from)], ranks()[static_cast<size_t>(move.to)],
                     impl_->set->ItemOf(move.shard)});
  }
  return moves;
}

std::vector<MovingRanks> SavePlan::MovePairs() const {
  std::map<std::pair<int, int>, uint64_t> bytes;
  for (const Writers::Move& move : impl_->writers.moves) {
    bytes[{ranks()[static_cast<size_t>(move.from)], ranks()[static_cast<size_t>(move.to)]}] +=
        impl_->set->BytesOf(move.shard);
  }
  std::vector<MovingRanks> pairs;
  pairs.reserve(bytes.size());
  for (const auto& [pair, sum] : bytes) pairs.push_back({pair.first, pair.second, sum});
  return pairs;
}

std::string SavePlanDigest(std::span<const RankInput> ranks, const SaveOptions& options) {
  std::vector<const RankInput*> sorted;
  for (const RankInput& input : ranks) sorted.push_back(&input);
  std::sort(sorted.begin(), sorted.end(), [](const auto* a, const auto* b) { return a->rank < b->rank; });
  Digester digester;
  digester.Add("cairn save plan 3").Add(uint64_t{ranks.size()});
  for (const RankInput* input : sorted) {
    digester.Add(static_cast<uint64_t>(input->rank)).Add(input->node).Add(input->layout_digest);
  }
  digester.Add(static_cast<uint64_t>(options.bins_per_rank)).Add(static_cast<uint64_t>(options.moves));
  digester.Add(absl::StrFormat("%.17g", options.move_threshold));
  return digester.Finish();
}

size_t SavePlan::ReusedRanks() const { return impl_->reused_ranks; }

size_t SavePlan::RanksWithEqualLayout(std::span<const RankInput> ranks) const {
  size_t equal = 0;
  for (const RankInput& input : ranks) {
    const auto r = impl_->IndexOf(input.rank);
    equal += r && impl_->set->layout_digests()[impl_->set->rank_layouts()[*r]] == input.layout_digest ? 1 : 0;
  }
  return equal;
}

absl::StatusOr<SavePlan> MakeSavePlan(std::span<const RankInput> ranks, const SaveOptions& options, FaultList& faults,
                                      const SavePlan* before) {
  if (options.bins_per_rank < 1 || options.bins_per_rank > 99) {
    faults.Add({Reason::kBadRequest,
                "",
                {},
                {},
                {},
                absl::StrCat("bins per rank must be 1 to 99, not ", options.bins_per_rank)});
    return faults.ToStatus();
  }
  const SavePlan::Impl* known = before == nullptr ? nullptr : before->impl_.get();
  if (known != nullptr && known->options == options) {
    if (auto derived = LayoutSet::Derive(*known->set, ranks); derived.has_value()) {
      return SavePlan(std::make_shared<const SavePlan::Impl>(std::make_shared<const LayoutSet>(*std::move(derived)),
                                                             options, SavePlanDigest(ranks, options), known));
    }
  }
  auto set = std::make_shared<const LayoutSet>(ranks, faults);
  ValidateTiling(*set, faults);
  if (!faults.empty()) return faults.ToStatus();
  return SavePlan(
      std::make_shared<const SavePlan::Impl>(std::move(set), options, SavePlanDigest(ranks, options), nullptr));
}

absl::StatusOr<SavePlan> MakeSavePlan(std::span<const RankInput> ranks, const SaveOptions& options,
                                      const SavePlan* before) {
  FaultList faults;
  return MakeSavePlan(ranks, options, faults, before);
}

}  // namespace cairn

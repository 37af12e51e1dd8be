#include "planner/load/load_plan.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/digest.h"
#include "common/status/status.h"
#include "planner/layout/layout_set.h"
#include "planner/load/mapped_match.h"
#include "planner/load/name_match.h"
#include "planner/load/read_parts.h"
#include "planner/load/reads.h"

namespace cairn {

class LoadPlan::Impl {
 public:
  std::string digest;
  std::vector<int> ranks;
  ReadParts parts;
  std::vector<std::string> missing;
  std::vector<std::string> unexpected;
  uint64_t unique_bytes = 0;
  std::shared_ptr<const aoa::MappingReport> mapping_report;
  std::shared_ptr<const FingerprintCheck> fingerprint_check;
};

namespace {

std::string LoadPlanDigest(const Manifest& source, const LayoutSet& targets, const LoadOptions& options) {
  Digester digester;
  digester.Add("cairn load plan 4")
      .Add(source.job)
      .Add(static_cast<uint64_t>(source.step))
      .Add(uint64_t{source.attempt});
  // If a step was removed and saved again, all of the above is equal but the bytes may differ. These checksums show it.
  for (const ManifestFile& file : source.files) digester.Add(uint64_t{file.header_crc32c});
  digester.Add(source.plan_digest).Add(uint64_t{options.round_bytes}).Add(uint64_t{options.owners_read});
  digester.Add(uint64_t{options.mapping != nullptr});
  if (options.mapping != nullptr) {
    const aoa::Config& mapping = *options.mapping;
    digester.Add(uint64_t{mapping.reverse}).Add(uint64_t{mapping.legacy_qkv}).Add(uint64_t{mapping.statements.size()});
    for (const std::string& statement : mapping.statements) digester.Add(statement);
  }
  digester.Add(uint64_t{targets.ranks().size()});
  for (size_t r = 0; r < targets.ranks().size(); ++r) {
    digester.Add(static_cast<uint64_t>(targets.ranks()[r])).Add(targets.nodes()[targets.rank_nodes()[r]]);
    digester.Add(targets.layout_digests()[targets.rank_layouts()[r]]);
  }
  if (!options.keepers.empty()) {
    digester.Add("keepers").Add(uint64_t{options.keepers.size()});
    for (int rank : options.keepers) digester.Add(static_cast<uint64_t>(rank));
  }
  if (!options.directory.empty()) digester.Add("directory").Add(options.directory);
  return digester.Finish();
}

// Adds job and step to an error, unless the source is no checkpoint of Cairn: live ranks, or files of another library.
absl::Status OfStep(const Manifest& source, const absl::Status& error) {
  if (source.job.empty()) return error;
  return Annotate(error, absl::StrCat("step ", source.step), {{"step", absl::StrCat(source.step)}});
}

}  // namespace

const std::string& LoadPlan::digest() const { return impl_->digest; }
const std::vector<int>& LoadPlan::ranks() const { return impl_->ranks; }
std::string LoadPlan::PartFor(int rank) const {
  const auto found = std::lower_bound(impl_->ranks.begin(), impl_->ranks.end(), rank);
  if (found == impl_->ranks.end() || *found != rank) return {};
  return impl_->parts.own[static_cast<size_t>(found - impl_->ranks.begin())] + impl_->parts.shared;
}
const std::vector<std::string>& LoadPlan::missing() const { return impl_->missing; }
const std::vector<std::string>& LoadPlan::unexpected() const { return impl_->unexpected; }
uint64_t LoadPlan::unique_bytes() const { return impl_->unique_bytes; }
const LoadTotals& LoadPlan::totals() const { return impl_->parts.totals; }
const aoa::MappingReport* LoadPlan::mapping_report() const { return impl_->mapping_report.get(); }
const std::shared_ptr<const FingerprintCheck>& LoadPlan::fingerprint_check() const { return impl_->fingerprint_check; }

absl::StatusOr<LoadPlan> MakeLoadPlan(const Manifest& source, std::span<const RankInput> targets,
                                      const LoadOptions& options, FaultList& faults) {
  if (options.round_bytes < kMinRoundBytes) {
    faults.Add({Reason::kBadQuantity,
                "",
                {},
                {},
                {},
                absl::StrCat("a round of ", options.round_bytes, " bytes is smaller than ", kMinRoundBytes)});
    return faults.ToStatus();
  }
  LayoutSet set(targets, faults);
  NameMatch match;
  auto plan = std::make_shared<LoadPlan::Impl>();
  if (options.mapping != nullptr) {
    MappedMatch mapped = MapNames(source, set, *options.mapping, faults);
    match = std::move(mapped.match);
    plan->mapping_report = std::move(mapped.report);
  } else {
    match = MatchNames(source, set, faults);
  }
  if (!faults.empty()) return OfStep(source, faults.ToStatus());
  const Reads reads = PlanReads(source, set, match, options);
  plan->digest = LoadPlanDigest(source, set, options);
  plan->ranks = set.ranks();
  plan->missing = std::move(match.missing);
  plan->unexpected = std::move(match.unexpected);
  plan->unique_bytes = reads.unique_bytes;
  if (std::any_of(reads.segments.begin(), reads.segments.end(), [](const Segment& s) { return s.reader < 0; })) {
    faults.Add({Reason::kBadRequest, "", {}, {}, {}, "a rank that holds bytes of the source is not among the targets"});
    return faults.ToStatus();
  }
  plan->parts = WriteReadParts(source, set, match, reads, options, plan->digest,
                               plan->mapping_report == nullptr ? "" : aoa::FormatReport(*plan->mapping_report));
  if (options.verify_fingerprints) {
    plan->fingerprint_check = std::make_shared<const FingerprintCheck>(source, std::move(set), match);
  }
  return LoadPlan(std::move(plan));
}

absl::StatusOr<LoadPlan> MakeLoadPlan(const Manifest& source, std::span<const RankInput> targets,
                                      const LoadOptions& options) {
  FaultList faults;
  return MakeLoadPlan(source, targets, options, faults);
}

}  // namespace cairn

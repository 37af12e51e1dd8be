// Plans which rank reads which bytes of a checkpoint. It loads any checkpoint into any layout, and reads every needed
// byte once.
//
// It is pure. planner/README.md has algorithms and costs.
#ifndef CAIRN_PLANNER_LOAD_LOAD_PLAN_H_
#define CAIRN_PLANNER_LOAD_LOAD_PLAN_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "common/format/manifest.h"
#include "common/status/fault.h"
#include "mapping/report.h"
#include "planner/layout/rank_input.h"
#include "planner/load/fingerprint_check.h"
#include "planner/load/load_options.h"
#include "planner/load/load_totals.h"
#include "planner/save/save_plan.h"

namespace cairn {

// Immutable, cheap to copy, thread-safe.
class LoadPlan {
 public:
  class Impl;
  explicit LoadPlan(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}

  // Returns a digest of 32 bytes over the checkpoint (its plan digest, job, step, attempt), layouts, ranks, nodes and
  // options.
  const std::string& digest() const;
  const std::vector<int>& ranks() const;
  // Returns the serialized cairn.v1.ReadPlan of a rank; empty for a rank that is not in the plan.
  std::string PartFor(int rank) const;
  // missing() has the names that targets want and the checkpoint lacks; unexpected() has the tensors of the checkpoint
  // that no target wants, but no objects. Both are sorted.
  const std::vector<std::string>& missing() const;
  const std::vector<std::string>& unexpected() const;
  // Returns the number of bytes of tensors and objects that all ranks together read: each needed byte once.
  uint64_t unique_bytes() const;
  const LoadTotals& totals() const;
  // Returns the report on the mapping; null without a mapping.
  const aoa::MappingReport* mapping_report() const;
  // Null unless LoadOptions::verify_fingerprints.
  const std::shared_ptr<const FingerprintCheck>& fingerprint_check() const;

 private:
  std::shared_ptr<const Impl> impl_;
};

// Plans a load of `source` into the targets' layouts. A target may want only parts of tensors, and may want a byte
// several times. INVALID_ARGUMENT, with all faults: the faults of single layouts (see MakeSavePlan; gaps and overlaps
// are allowed here), SHAPE_MISMATCH and DTYPE_MISMATCH between checkpoint and target, and the faults of the mapping.
// BAD_QUANTITY: round_bytes is too small.
absl::StatusOr<LoadPlan> MakeLoadPlan(const Manifest& source, std::span<const RankInput> targets,
                                      const LoadOptions& options);
absl::StatusOr<LoadPlan> MakeLoadPlan(const Manifest& source, std::span<const RankInput> targets,
                                      const LoadOptions& options, FaultList& faults);

// Plans an in-memory reshard, for which source and target are both live. Each rank's source memory is one virtual file,
// whose items are the shards that the rank serves, in the order of `source_parts`. Only the rank's own agent can read
// it.
struct ReshardPlan {
  SavePlan source;  // which shards each rank serves: one bin per rank, no header is read
  LoadPlan load;
};
absl::StatusOr<ReshardPlan> MakeReshardPlan(std::span<const RankInput> sources, std::span<const RankInput> targets,
                                            const LoadOptions& options);
absl::StatusOr<ReshardPlan> MakeReshardPlan(std::span<const RankInput> sources, std::span<const RankInput> targets,
                                            const LoadOptions& options, FaultList& faults);

}  // namespace cairn

#endif  // CAIRN_PLANNER_LOAD_LOAD_PLAN_H_

// Plans who reads what: any checkpoint is loaded into any layout, and every needed byte is read once.
//
// Pure. Algorithms and costs: docs/planner.md.
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
#include "planner/load/load_options.h"
#include "planner/save/save_plan.h"

namespace cairn {

struct LoadTotals {
  // What one rank reads of one file.
  struct RankFile {
    int rank = 0;
    uint32_t file = 0;  // of Manifest::files
    uint64_t bytes = 0;
  };
  // What one rank takes from another's (or its own) reads.
  struct RankPair {
    int from = 0;
    int to = 0;
    uint64_t bytes = 0;
  };
  std::vector<RankFile> reads;   // by (rank, file)
  std::vector<RankPair> copies;  // by (from, to); from != to
};

// Immutable, cheap to copy, thread-safe.
class LoadPlan {
 public:
  class Impl;
  explicit LoadPlan(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}

  // 32 bytes; covers the checkpoint (its plan digest, job, step, attempt), layouts, ranks, nodes and options.
  const std::string& digest() const;
  const std::vector<int>& ranks() const;
  // The serialized cairn.v1.ReadPlan of a rank; empty for a rank that is not in the plan.
  const std::string& PartFor(int rank) const;
  // Names that targets want and the checkpoint lacks, and tensors of the checkpoint that no target wants; sorted.
  // Objects are never unexpected.
  const std::vector<std::string>& missing() const;
  const std::vector<std::string>& unexpected() const;
  // The payload that all ranks read from storage, and the distinct bytes of the checkpoint that are needed. The two are
  // always equal.
  uint64_t total_bytes_read() const;
  uint64_t unique_bytes() const;
  const LoadTotals& totals() const;
  // Says what the mapping does; null if there is none.
  const aoa::MappingReport* mapping_report() const;

 private:
  std::shared_ptr<const Impl> impl_;
};

// Plans a load of `source` into the targets' layouts. A target may want parts only, and may want a byte several times.
// INVALID_ARGUMENT with all faults: those of a layout by itself (see MakeSavePlan; gaps and overlaps are none here),
// SHAPE_MISMATCH, DTYPE_MISMATCH between checkpoint and target, and those of the mapping; BAD_QUANTITY: round_bytes.
absl::StatusOr<LoadPlan> MakeLoadPlan(const Manifest& source, std::span<const RankInput> targets,
                                      const LoadOptions& options);
absl::StatusOr<LoadPlan> MakeLoadPlan(const Manifest& source, std::span<const RankInput> targets,
                                      const LoadOptions& options, FaultList& faults);

// Plans an in-memory reshard: source and target are both live. Each rank's source memory is one virtual file, whose
// items are the shards that the rank serves, in the order of `source_parts`; only its own agent can read it.
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

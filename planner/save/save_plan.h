// Plans who writes what: one writer for each distinct shard of a job, the bins, and every byte position of every file.
//
// This is pure: a plan is a function of the layouts, ranks, nodes and options, and its digest covers all of them.
// Algorithms and costs: docs/planner.md.
#ifndef CAIRN_PLANNER_SAVE_SAVE_PLAN_H_
#define CAIRN_PLANNER_SAVE_SAVE_PLAN_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "cairn/v1/agent_coordination_service.pb.h"
#include "common/format/manifest.h"
#include "common/status/fault.h"
#include "planner/layout/rank_input.h"
#include "planner/save/save_options.h"

namespace cairn {

// What the agent of one rank reported after it had written.
struct RankResult {
  int rank = 0;
  cairn::v1::WriteResult result;
};

// Checksums of items that a rank holds, by the item's number in its layout. Every shared object must be there, and any
// shards may be.
struct HolderChecksums {
  int rank = 0;
  std::vector<cairn::v1::ReplicaChecksum> checksums;
};

struct CommitInfo {
  std::string job;
  int64_t step = 0;
  uint32_t attempt = 0;
  std::string request_id;
  uint32_t world_size = 0;
  absl::Time commit_time;
  // "cairn 0.1.0".
  std::string writer;
};

// One item of a planned file, as a person or a test wants to see it.
struct PlannedItem {
  StoredItem item;
  uint64_t file_offset = 0;
};
struct PlannedFileView {
  int rank = 0;
  int bin = 0;
  std::string name;
  uint64_t header_bytes = 0;
  uint64_t data_bytes = 0;
  std::vector<PlannedItem> items;
};
struct PlannedMove {
  int from = 0;
  int to = 0;
  StoredItem item;
};

// Immutable, cheap to copy, thread-safe.
class SavePlan {
 public:
  class Impl;
  explicit SavePlan(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}

  // 32 bytes; equal digests mean equal plans.
  const std::string& digest() const;
  // Ascending.
  const std::vector<int>& ranks() const;
  // The bytes of all files, headers and slots included.
  uint64_t total_bytes() const;
  // The bytes of tensors and objects, each distinct one counted once, without headers.
  uint64_t unique_bytes() const;
  // Data bytes that each rank writes, parallel to ranks().
  std::vector<uint64_t> rank_bytes() const;
  // The data bytes that a rank writes and no other rank holds. 0 for a rank that is not in the plan.
  uint64_t SoleBytes(int rank) const;
  // All names of tensors, objects and aliases, sorted.
  std::vector<std::string> names() const;

  // The serialized cairn.v1.WritePlan of a rank of this plan; empty for any other.
  std::string PartFor(int rank) const;
  // The digest of the part without the plan's own digest: equal in two plans if the rank has the same to do in both.
  std::string PartDigest(int rank) const;

  // Lists everything at once, for people and dry runs. This takes memory for every item.
  std::vector<PlannedFileView> Files() const;
  std::vector<PlannedMove> Moves() const;
  // Ranks (from, to) between which shards move, each pair once; ascending.
  std::vector<std::pair<int, int>> MovePairs() const;

  // Compares what holders have with what was written. `objects` gets OBJECT_MISMATCH for each shared object, `tensors`
  // REPLICA_MISMATCH for each shard whose holders report other bytes than its writer, naming the item, the writer and
  // the holders that differ. Shards are compared where a holder reports them. Each rank that declares a shared object
  // has to report it: if one does not, BAD_REQUEST in `objects` names the object. `results` may lack ranks; what nobody
  // wrote is left out. `objects` and `tensors` may be one list.
  void CompareReplicas(std::span<const RankResult> results, std::span<const HolderChecksums> holders,
                       FaultList& objects, FaultList& tensors) const;

  // Makes the manifest of an attempt that followed this plan. `results` needs every rank that writes a file.
  // INVALID_ARGUMENT (BAD_REQUEST): a rank's result is missing or does not fit its part.
  absl::StatusOr<Manifest> MakeManifest(std::span<const RankResult> results, const CommitInfo& commit) const;

 private:
  std::shared_ptr<const Impl> impl_;
};

// Validates the layouts as a whole, and plans. `ranks` may be in any order, but no rank may be there twice.
// INVALID_ARGUMENT with all faults found (see FaultList::ToStatus) and the reason of the first: BAD_REQUEST (bytes that
// are no layout, columns that do not fit), BAD_NAME, BAD_DTYPE, BAD_SHAPE, SHAPE_OVERFLOW, SHARD_OUT_OF_BOUNDS,
// SHARD_GAP, SHARD_OVERLAP, SHAPE_MISMATCH, DTYPE_MISMATCH, NAME_COLLISION, ALIAS_UNRESOLVED, EMPTY_LAYOUT;
// FAILED_PRECONDITION: OBJECT_MISMATCH (slots of a shared object differ).
absl::StatusOr<SavePlan> MakeSavePlan(std::span<const RankInput> ranks, const SaveOptions& options);
// The same. After an error all faults are in `faults`, which then is not empty.
absl::StatusOr<SavePlan> MakeSavePlan(std::span<const RankInput> ranks, const SaveOptions& options, FaultList& faults);

// The digest that the result of MakeSavePlan would have. It is computed without planning.
std::string SavePlanDigest(std::span<const RankInput> ranks, const SaveOptions& options);

// Remembers the last plans by digest, so that unchanged layouts never plan again. Not thread-safe.
class SavePlanCache {
 public:
  explicit SavePlanCache(size_t capacity = 4) : capacity_(capacity) {}
  absl::StatusOr<SavePlan> Get(std::span<const RankInput> ranks, const SaveOptions& options);
  // How many calls of Get planned anew.
  size_t planned() const { return planned_; }

 private:
  size_t capacity_;
  size_t planned_ = 0;
  std::vector<SavePlan> plans_;  // the one used last is the last
};

}  // namespace cairn

#endif  // CAIRN_PLANNER_SAVE_SAVE_PLAN_H_

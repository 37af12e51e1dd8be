// Plans a save: one writer for each distinct shard of a job, the bins, and the position of every byte in every file.
//
// This is pure: a plan is a function of the layouts, ranks, nodes and options, and its digest covers all of them.
// Algorithms and costs: planner/README.md.
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

// The report of one rank's agent after it has written its part.
struct RankResult {
  int rank = 0;
  cairn::v1::WriteResult result;
};

// The checksums of items that a rank holds, by the item's number in its layout. Every shared object must be among them,
// and any of the shards may be.
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
  // The program and version that write the manifest, such as "cairn 0.1.0".
  std::string writer;
};

// One item of a planned file, for people and tests.
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

struct MovingRanks {
  int from = 0;
  int to = 0;
  uint64_t bytes = 0;
};

// Immutable, cheap to copy, thread-safe.
class SavePlan {
 public:
  class Impl;
  explicit SavePlan(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}

  // Returns 32 bytes; equal digests mean equal plans.
  const std::string& digest() const;
  // Returns the ranks, ascending.
  const std::vector<int>& ranks() const;
  // Counts the bytes of all files, headers and slots included.
  uint64_t total_bytes() const;
  // Counts the bytes of tensors and objects, each distinct one once, without headers.
  uint64_t unique_bytes() const;
  // Returns how many data bytes each rank writes, parallel to ranks().
  std::vector<uint64_t> rank_bytes() const;
  // Counts the data bytes that a rank writes and no other rank holds. 0 for a rank that is not in the plan.
  uint64_t SoleBytes(int rank) const;
  // Returns all names of tensors, objects and aliases, sorted.
  std::vector<std::string> names() const;
  // Returns the names of objects, sorted.
  std::vector<std::string> object_names() const;

  // Counts the ranks whose files were taken over from the plan `before` of MakeSavePlan.
  size_t ReusedRanks() const;
  // Counts those of `ranks` that have in this plan the layout that they have there.
  size_t RanksWithEqualLayout(std::span<const RankInput> ranks) const;

  // Returns the serialized cairn.v1.WritePlan of a rank of this plan; empty for any other.
  std::string PartFor(int rank) const;

  // Lists everything at once, for people and dry runs. This takes memory for every item.
  std::vector<PlannedFileView> Files() const;
  std::vector<PlannedMove> Moves() const;
  // Returns the pairs of ranks between which shards move, each pair once; ascending.
  std::vector<MovingRanks> MovePairs() const;

  // Compares the checksums of holders with those of the writers. If holders of a shared object report other bytes than
  // its writer, `objects` gets OBJECT_MISMATCH; for a shard, `tensors` gets REPLICA_MISMATCH. The fault names the item,
  // the writer and the holders that differ. Holders need not report shards. Each rank that declares a shared object
  // must report it; if one does not, `objects` gets BAD_REQUEST, which names the object. `results` may lack ranks;
  // items of those ranks are not compared. `objects` and `tensors` may be the same list.
  void CompareReplicas(std::span<const RankResult> results, std::span<const HolderChecksums> holders,
                       FaultList& objects, FaultList& tensors) const;

  // Makes the manifest of an attempt that followed this plan. `results` needs every rank that writes a file.
  // INVALID_ARGUMENT (BAD_REQUEST): a rank's result is missing or does not fit its part.
  absl::StatusOr<Manifest> MakeManifest(std::span<const RankResult> results, const CommitInfo& commit) const;

 private:
  friend absl::StatusOr<SavePlan> MakeSavePlan(std::span<const RankInput> ranks, const SaveOptions& options,
                                               FaultList& faults, const SavePlan* before);

  std::shared_ptr<const Impl> impl_;
};

// Validates the layouts together and makes the plan. `ranks` may be in any order, but must not have a rank twice. Fails
// with all faults that it found (see FaultList::ToStatus) and the reason of the first. INVALID_ARGUMENT: BAD_REQUEST
// (bytes that are no layout, columns that do not fit), BAD_NAME, BAD_DTYPE, BAD_SHAPE, SHAPE_OVERFLOW,
// SHARD_OUT_OF_BOUNDS, SHARD_GAP, SHARD_OVERLAP, SHAPE_MISMATCH, DTYPE_MISMATCH, NAME_COLLISION, ALIAS_UNRESOLVED,
// EMPTY_LAYOUT. FAILED_PRECONDITION: OBJECT_MISMATCH (slots of a shared object differ).
//
// `before`: an earlier plan, or null. The result is the same without it. If the two differ in no rank, tensor, shard or
// option, but in some ranks' objects, aliases or nodes, the new plan takes over what stays the same and costs
// O(ranks + holders of replicas + items of the ranks whose part changes); else all is planned.
absl::StatusOr<SavePlan> MakeSavePlan(std::span<const RankInput> ranks, const SaveOptions& options,
                                      const SavePlan* before = nullptr);
// Does the same. After an error `faults` has the faults and is not empty.
absl::StatusOr<SavePlan> MakeSavePlan(std::span<const RankInput> ranks, const SaveOptions& options, FaultList& faults,
                                      const SavePlan* before = nullptr);

// Returns SavePlan::digest() of the plan that MakeSavePlan would make, without planning.
std::string SavePlanDigest(std::span<const RankInput> ranks, const SaveOptions& options);

}  // namespace cairn

#endif  // CAIRN_PLANNER_SAVE_SAVE_PLAN_H_

// The actions that decisions ask for, and their results. The server executes actions on its workers and hands the
// results back as events; the simulator does the same in memory.
#ifndef CAIRN_COORDINATOR_DECISION_CORE_ACTION_H_
#define CAIRN_COORDINATOR_DECISION_CORE_ACTION_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "cairn/v1/agent_coordination_service.pb.h"
#include "common/format/manifest.h"
#include "coordinator/decision/prune_policy.h"

namespace cairn {

// The record that ended an attempt, as it stands in storage.
struct VerdictSummary {
  int64_t step = 0;
  uint32_t attempt = 0;
  // Its verdict is a manifest. It stays true if the attempt is deleted later.
  bool committed = false;
  // It was deleted: nobody may load it, whatever its verdict was, and `error` says when and why.
  bool deleted = false;
  // There is a verdict that cannot be read, or that is not what it should be: `error` says why. Nobody may load the
  // attempt, and nothing of it is removed.
  bool damaged = false;
  std::string request_id;
  // Why it was aborted (a tombstone), what is wrong with it (a damaged verdict), or when and why it was deleted.
  absl::Status error;
  // The next three are set for a manifest, also of a deleted attempt.
  uint64_t bytes = 0;
  uint32_t world_size = 0;
  absl::Time commit_time = absl::UnixEpoch();
  // Set for a manifest that was not deleted.
  Lineage lineage;

  // Returns whether it may be loaded: it makes its step a committed one.
  bool stands() const { return committed && !deleted; }
};

// An attempt that has a directory, and no manifest or a deleted one.
struct Leftover {
  int64_t step = 0;
  uint32_t attempt = 0;
  bool tombstone = false;  // one stands, or a deletion; only the files are left
  bool deleted = false;    // it is a deletion: loads that have begun may read the files still
};

// Asks what storage knows of the job. Job::OnRecovered takes the answer.
struct RecoverJob {};

// Asks what storage knows of one step now. Job::OnStepRead takes the answer.
struct ReadStep {
  int64_t step = 0;
  uint64_t ticket = 0;
};

// Plans a save of these layouts, by rank. Job::OnSavePlanned takes the answer.
struct PlanSave {
  std::string key;  // identifies layouts and nodes; echoed
  std::vector<std::string> layout;
  std::vector<std::string> node;
};

// Finds a number for a new attempt at a step: above every verdict and directory of the step and above `above`. Puts
// tombstones on attempts that have no verdict and removes the files of those that have a tombstone. Compares the plan's
// names with those of the last committed step on which the training builds, unless `allow_dropped_names`. A step that
// is committed is taken only with `overwrite`, or if it is left behind. Job::OnReserved takes the
// answer.
struct ReserveAttempt {
  int64_t step = 0;
  uint32_t above = 0;
  std::string plan_digest;
  bool allow_dropped_names = false;
  bool overwrite = false;
  // The committed steps on which the training does not build: it has gone on from an older one.
  std::set<int64_t> left_behind;
  uint64_t ticket = 0;
};

// Makes the manifest, and compares the checksums of replicas on the way. Shared objects that differ are an error;
// tensors that differ are one only with `replicas_must_match`. Job::OnManifest takes the answer.
struct MakeManifest {
  int64_t step = 0;
  uint32_t attempt = 0;
  std::string plan_digest;
  std::string request_id;
  std::vector<v1::WriteResult> result;                             // by rank
  std::vector<std::vector<v1::ReplicaChecksum>> replica_checksum;  // by rank
  bool replicas_must_match = false;
  Lineage lineage;              // stands in the manifest
  std::vector<Metric> metrics;  // stand in the manifest, in any order here
  uint64_t ticket = 0;
};

// A file that must stand there, in this size, before the attempt may be committed.
struct BinFile {
  std::string name;  // with its ending
  int rank = 0;
  uint64_t bytes = 0;
};
using BinFiles = std::shared_ptr<const std::vector<BinFile>>;

// Puts the record that ends an attempt, if none stands there. A manifest is put only if the attempt's directory holds
// `nonce`, and all `bins` in their sizes. Job::OnVerdict takes the answer.
struct PutVerdict {
  int64_t step = 0;
  uint32_t attempt = 0;
  uint64_t nonce = 0;                           // of a manifest's attempt
  std::shared_ptr<const std::string> manifest;  // null for a tombstone
  BinFiles bins;                                // of a manifest
  absl::Status error;                           // of a tombstone
  std::string request_id;
  uint64_t ticket = 0;
};

// Removes an attempt's directory. This action is given only when a tombstone stands, or a deletion and nobody reads the
// files. Job::OnRemoved takes the answer.
struct RemoveFiles {
  int64_t step = 0;
  uint32_t attempt = 0;
  bool deleted = false;
  uint64_t ticket = 0;
  std::optional<int64_t> latest;  // of a deletion: as in ChangeSteps
};

// Says what is known of a job's steps without asking storage.
struct KnownSteps {
  std::vector<int64_t> all;        // that have a verdict of any kind, ascending
  std::vector<int64_t> current;    // of these, the committed and not superseded, or damaged ones, ascending
  std::vector<int64_t> committed;  // of these, the committed ones
};

// Plans a load of these target layouts, by rank. If there are source layouts, it is a reshard.
// Job::OnLoadPlanned takes the answer.
struct PlanLoad {
  uint64_t number = 0;  // of the operation; no rank's own
  std::vector<std::string> source_layout;
  std::optional<int64_t> step;  // unset: the latest committed
  bool fallback = false;        // ... that is not proven to be damaged
  // Storage is read for these steps only, and not for every checkpoint that the job ever had. Null: for all.
  std::shared_ptr<const KnownSteps> known;
  std::vector<std::string> layout;
  std::vector<std::string> node;
  // Has a name for each rank: those with the same name share memory, and one with none shares it with nobody. It is
  // empty if nobody asks.
  std::vector<std::string> memory;
  bool strict = true;
  uint64_t round_bytes = 0;  // largest read buffer that every agent can make; 0 for no wish
  // By rank: of which attempt its agent still has the files in memory; attempt 0 for none.
  struct Kept {
    int64_t step = 0;
    uint32_t attempt = 0;
  };
  std::vector<Kept> kept;
  // Names the operation by the calls of all ranks that make it: no other has this digest, and after a restart it is the
  // same.
  std::string calls_digest;
  uint64_t ticket = 0;
};

// Puts the record by which a committed or damaged step is deleted. Its files stay until RemoveFiles.
// Job::OnStepsChanged takes the answer.
struct DeleteStep {
  int64_t step = 0;
  std::string cause;
};
// Deletes the commits of a step in whose place a later one of the step stands, if that one is sound. Does nothing to a
// step that is pinned.
struct DeleteReplaced {
  int64_t step = 0;
};
// Puts or removes the pin of a step that is committed or damaged.
struct PinStep {
  int64_t step = 0;
  bool pinned = true;
  std::string note;  // stands in the pin, for people
};
// Gives a committed or damaged step a name that no other step has; or takes the name from all steps that have it.
struct TagStep {
  std::string tag;
  std::optional<int64_t> step;  // unset: takes it away
};
// Deletes what a policy does not keep, the oldest first: see ChoosePruned. One action deletes, or looks, for a moment
// only, so that a pin, a tag or another rule never waits behind hundreds of checkpoints; the next one goes on.
struct PruneSteps {
  // Unset: the job's own, which stands in storage. If there is none, nothing is pruned.
  std::optional<PrunePolicy> policy;
  bool dry_run = false;
  std::vector<int64_t> in_use = {};  // steps that loads want
  // The steps to choose from, ascending; unset: all that stand below the root.
  std::optional<std::vector<int64_t>> steps = std::nullopt;
  // Where the action before this one has stopped: the steps up to there had their turn.
  std::optional<int64_t> after = std::nullopt;
};
// Sets the job's own policy; an empty one removes it.
struct SetRetention {
  PrunePolicy policy;
};
// A change of steps that have ended. One is under way at a time, because each looks at what the others leave.
struct ChangeSteps {
  std::variant<DeleteStep, DeleteReplaced, PinStep, TagStep, PruneSteps, SetRetention> change;
  uint64_t ticket = 0;
  // The latest step on which the training builds, as far as the job knows. A deletion looks there first for a sound
  // checkpoint that remains.
  std::optional<int64_t> latest = std::nullopt;
};

struct CoreAction {
  std::string job;
  std::variant<RecoverJob, ReadStep, PlanSave, ReserveAttempt, MakeManifest, PutVerdict, RemoveFiles, PlanLoad,
               ChangeSteps>
      what;
};

struct Recovered {
  std::vector<VerdictSummary> verdict;  // ascending by (step, attempt)
  std::vector<Leftover> leftover;
};

// The result of a ChangeSteps.
struct ChangedSteps {
  // The attempts that are deleted now, also those that were before.
  std::vector<VerdictSummary> deleted;
  // A DeleteStep sets this: the numbers of those attempts that were deleted before. They ascend.
  std::vector<uint32_t> deleted_before;
  // A PruneSteps sets these: what becomes, or became, of every checkpoint; the policy that said so; and, if it has
  // stopped before its end, after which step.
  std::vector<PruneChoice> choices;
  PrunePolicy policy;
  std::optional<int64_t> stopped_after;
  // A PruneSteps that could not go on sets this, if it had deleted something before. It says why, and the choices that
  // it did not come to do not prune.
  absl::Status ended_by;
  // A TagStep sets these: the steps from which it took the name.
  std::vector<int64_t> untagged;
};

struct Reserved {
  uint32_t attempt = 0;
  uint64_t nonce = 0;  // stands in the attempt's directory
};

// The result of a PutVerdict.
struct PutOutcome {
  // The record that stands there now, durably.
  absl::StatusOr<VerdictSummary> standing;
  // True: `standing` is an error, but the record may stand there all the same, or may come to stand there later. False:
  // it does not stand there.
  bool in_doubt = false;
};

struct PlannedSave {
  std::string plan_digest;
  uint64_t bytes = 0;  // of all files
  // The rank `to` writes shards of the rank `from`.
  struct Move {
    int from = 0;
    int to = 0;
    uint64_t bytes = 0;
  };
  // Each pair is there once; they ascend.
  std::vector<Move> moves;
  // By this token an agent knows that its peer takes part in the save. It cannot be guessed, and it is the same after a
  // restart.
  std::string transfer_token;
  // As long as somebody has it, agents find the plan by its digest. It is null in simulations.
  std::shared_ptr<const void> hold;
};

struct MadeManifest {
  std::shared_ptr<const std::string> manifest;
  uint64_t bytes = 0;
  BinFiles bins;
  absl::Status warning;  // replicas of tensors that differ
};

struct PlannedLoad {
  // Returns true if it is of a step of the job: neither of a reshard nor of a source that Cairn did not write.
  bool IsStep() const { return world_size > 0 && !is_foreign; }

  int64_t step = 0;         // not of a reshard
  uint32_t world_size = 0;  // of the ranks that saved it
  bool is_foreign = false;  // it is a source that Cairn did not write
  std::string plan_digest;
  std::string source_plan_digest;  // of a reshard
  // By this token an agent knows that its peer takes part in the load. It cannot be guessed, and it is the same after a
  // restart.
  std::string transfer_token;
  std::vector<std::string> missing;
  std::vector<std::string> unexpected;
  std::vector<std::pair<int64_t, absl::Status>> passed_over;  // newest first
  std::optional<int64_t> older_step;                          // the newest committed one below `step`
  uint64_t total_bytes_read = 0;
  uint64_t unique_bytes = 0;
  // Counts what ranks take from ranks with which they share no memory, as far as PlanLoad says that.
  uint64_t transport_bytes = 0;
  // As in PlannedSave; of a reshard, for both plans.
  std::shared_ptr<const void> hold;
};

}  // namespace cairn

#endif  // CAIRN_COORDINATOR_DECISION_CORE_ACTION_H_

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
#include "coordinator/alarms/alarm_policy.h"
#include "store/read/stored_attempt.h"
#include "store/write/attempt_requests.h"
#include "store/write/step_requests.h"

namespace cairn {

class FingerprintCheck;  // planner/load/fingerprint_check.h

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
  AlarmPolicy alarms;
  std::optional<int64_t> builds_on;  // the newest committed step on which the training builds
  uint64_t ticket = 0;
};

// Removes an attempt's directory. This action is given only when an abort record stands, or a deletion and nobody reads
// the files. Job::OnRemoved takes the answer.
struct RemoveFiles {
  int64_t step = 0;
  uint32_t attempt = 0;
  bool deleted = false;
  uint64_t ticket = 0;
  std::optional<int64_t> latest;  // of a deletion: as in ChangeSteps
};

// Plans a load of these target layouts, by rank. If there are source layouts, it is a reshard.
// Job::OnLoadPlanned takes the answer.
struct PlanLoad {
  uint64_t number = 0;  // of the operation; no rank's own
  std::vector<std::string> source_layout;
  std::optional<int64_t> step;  // unset: the latest committed
  bool fallback = false;        // ... that is not proven to be damaged
  // Steps in whose files at the root an earlier load has found damage: another copy is better, if there is one.
  std::set<int64_t> damaged;
  // Storage is read for these steps only, and not for every checkpoint that the job ever had. Null: for all.
  std::shared_ptr<const KnownSteps> known;
  std::vector<std::string> layout;
  std::vector<std::string> node;
  // Has a name for each rank: those with the same name share memory, and one with none shares it with nobody. It is
  // empty if nobody asks.
  std::vector<std::string> memory;
  bool strict = true;
  bool verify_fingerprints = false;  // the answer must have PlannedLoad::check
  uint64_t round_bytes = 0;          // largest read buffer that every agent can make; 0 for no wish
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

// Compares what all ranks of a load hold with the checkpoint. Job::OnLoadVerified takes the answer: how many tensors
// are the checkpoint's.
struct VerifyLoad {
  uint64_t number = 0;  // of the operation; no rank's own
  std::shared_ptr<const FingerprintCheck> check;
  std::vector<std::vector<uint64_t>> parts;  // by rank: LoadState.fingerprint_parts
  uint64_t ticket = 0;
};

using CoreAction = std::variant<RecoverJob, ReadStep, PlanSave, ReserveAttempt, MakeManifest, PutOutcome, RemoveFiles,
                                PlanLoad, VerifyLoad, ChangeSteps>;

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
  std::vector<Alarm> alarms;  // which stand in it
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
  std::vector<absl::Status> warnings;                         // the step's alarms
  std::string copy;  // the address of the mirror, if it has a copy of a step that is read from the root
  std::optional<int64_t> older_step;  // the newest committed one below `step`
  std::string mirror;                 // its address, if the step is read from there
  uint64_t total_bytes_read = 0;
  uint64_t unique_bytes = 0;
  // Counts what ranks take from ranks with which they share no memory, as far as PlanLoad says that.
  uint64_t transport_bytes = 0;
  std::shared_ptr<const FingerprintCheck> check;  // set if PlanLoad::verify_fingerprints
  // As in PlannedSave; of a reshard, for both plans.
  std::shared_ptr<const void> hold;
};

}  // namespace cairn

#endif  // CAIRN_COORDINATOR_DECISION_CORE_ACTION_H_

// How checkpoints look: as JSON with stable keys, and as tables.
#ifndef CAIRN_CLI_CHECKPOINT_VIEW_H_
#define CAIRN_CLI_CHECKPOINT_VIEW_H_

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cairn/v1/checkpoint_service.pb.h"
#include "cli/terminal.h"

namespace cairn::cli {

// "COMMITTED".
std::string StateName(v1::Checkpoint::State state);
bool IsEnded(const v1::Checkpoint& checkpoint);

// {"job", "step", "state", "attempt", "commit_time", "bytes", "world_size"}; of a damaged one "error" too, and null for
// what is not known.
nlohmann::ordered_json ListedToJson(const v1::Checkpoint& checkpoint);
// STEP STATE COMMITTED BYTES RANKS ATTEMPT; what is damaged in red, with its error.
Table ListTable(const std::vector<v1::Checkpoint>& checkpoints);
// {"job", "step", "state", "attempt", "phase", "ranks": [...], "error", "warning"}
nlohmann::ordered_json ProgressToJson(const v1::Checkpoint& checkpoint);

// RANK NODE PHASE DONE TOTAL IDLE NOTE; late ranks in red.
Table RankTable(const google::protobuf::RepeatedPtrField<v1::RankProgress>& ranks);
// "demo@1200 attempt 1 writing [####    ] 50% ...; late: rank 3 (no progress for 12 s)"
std::string ProgressText(const v1::Checkpoint& checkpoint);

// "warning: REPLICA_MISMATCH: ..." of a checkpoint that has one.
std::string WarningText(const v1::Checkpoint& checkpoint);

// "2026-03-01T12:00:00Z"; empty for an unset time.
std::string TimeText(const google::protobuf::Timestamp& time);

}  // namespace cairn::cli

#endif  // CAIRN_CLI_CHECKPOINT_VIEW_H_

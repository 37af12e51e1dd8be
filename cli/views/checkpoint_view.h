// Shows checkpoints as JSON with stable keys, and as tables.
#ifndef CAIRN_CLI_VIEWS_CHECKPOINT_VIEW_H_
#define CAIRN_CLI_VIEWS_CHECKPOINT_VIEW_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "cairn/v1/checkpoint_service.pb.h"
#include "cli/base/terminal.h"

namespace cairn::cli {

// Returns for example "COMMITTED".
std::string StateName(v1::Phase::Value state);
bool IsEnded(const v1::Checkpoint& checkpoint);

// Returns {"job", "step", "state", "attempt", "pinned", "tags", "commit_time", "bytes", "world_size", "continues_step",
// "metrics", "warnings"}, and "mirror": {"state", "error"} if the coordinator has a mirror. A damaged one has "error"
// instead of the keys after "world_size", and null for unknown values.
nlohmann::ordered_json ListedToJson(const v1::Checkpoint& checkpoint);
// Prints facts about a checkpoint, one a line: whether it is superseded, pinned or tagged, its metrics, and its
// warnings. Prints nothing that does not apply.
void PrintStanding(const v1::Checkpoint& checkpoint);
// Has the columns STEP STATE COMMITTED BYTES RANKS ATTEMPT PINNED TAGS ERROR, and MIRROR before ERROR if a checkpoint
// says how it stands at a mirror. Damaged checkpoints are red; superseded
// ones, and those with a warning, are yellow. The column ERROR also shows the warning of a committed checkpoint, or the
// kinds of its warnings.
Table ListTable(const std::vector<v1::Checkpoint>& checkpoints);
// Returns {"address", "steps_waiting", "error", "copying_step", "bytes_done", "bytes_total"}.
nlohmann::ordered_json MirrorToJson(const v1::Mirror& mirror);
// Returns a line on the mirror, and one on the error that keeps it from being used, if there is one.
std::string MirrorText(const v1::Mirror& mirror);
// Returns a list of {"rank", "phase", "bytes_done", "bytes_total", "late", "node", "note"}.
nlohmann::ordered_json RanksToJson(const google::protobuf::RepeatedPtrField<v1::RankProgress>& ranks);
// Returns {"job", "step", "state", "attempt", "phase", "ranks": [...], "error", "warnings"}.
nlohmann::ordered_json ProgressToJson(const v1::Checkpoint& checkpoint);

// Returns a number of bytes of the rank for a table; "" as long as nobody knows how many it moves in all.
std::string SizeCell(const v1::RankProgress& rank, uint64_t bytes);
// Has the columns RANK NODE PHASE DONE TOTAL IDLE NOTE. Late ranks are red.
Table RankTable(const google::protobuf::RepeatedPtrField<v1::RankProgress>& ranks);
// Returns for example "demo@1200 attempt 1 writing [####    ] 50% ...; late: rank 3 (no progress for 12 s)".
std::string ProgressText(const v1::Checkpoint& checkpoint);

// Returns the line "  next: ..." with what to do about an error, and a line break before it; empty if the error says it
// itself.
std::string NextLine(const absl::Status& error);

nlohmann::ordered_json WarningsToJson(const v1::Checkpoint& checkpoint);
// Returns "warning: jump: ..." and what to do for each warning of a checkpoint, on lines that begin with `indent`.
std::string WarningsText(const v1::Checkpoint& checkpoint, std::string_view indent = "");

// Returns for example "2026-03-01T12:00:00Z"; empty for an unset time.
std::string TimeText(const google::protobuf::Timestamp& time);

}  // namespace cairn::cli

#endif  // CAIRN_CLI_VIEWS_CHECKPOINT_VIEW_H_

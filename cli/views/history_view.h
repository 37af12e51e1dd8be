// Shows the ended operations on a job's checkpoints: saves, loads and reshards, one line each.
#ifndef CAIRN_CLI_VIEWS_HISTORY_VIEW_H_
#define CAIRN_CLI_VIEWS_HISTORY_VIEW_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "cairn/v1/monitoring_service.pb.h"
#include "cli/base/terminal.h"
#include "store/read/checkpoint_store.h"

namespace cairn::cli {

struct HistoryEntry {
  std::string kind;  // "save", "load" or "reshard"
  std::optional<int64_t> step;
  uint32_t attempt = 0;  // of a save; 0 if none had begun
  // When the operation began. For an entry that was read from storage: when it ended.
  absl::Time time = absl::UnixEpoch();
  std::string result;  // "done", "deleted", or a reason as "RANK_LOST"
  std::string message;
  std::optional<absl::Duration> duration;
  uint64_t bytes = 0;
  uint32_t world_size = 0;
  // The phase that took longest, of the phases that had to wait for a rank, and the rank that ended it.
  std::string slowest_phase;
  std::optional<uint32_t> slowest_rank;

  // Bytes per second; nothing if not known, or if the operation did not succeed.
  std::optional<double> throughput() const;
};

HistoryEntry EntryOf(const v1::Timeline& timeline);
// Returns the saves that are recorded in storage, oldest first. Attempts without an outcome are omitted.
std::vector<HistoryEntry> EntriesOf(const std::vector<StepRecord>& steps);

// Returns {"kind", "step", "attempt", "time", "result", "message", "duration", "bytes", "throughput", "world_size",
// "slowest_rank", "slowest_phase"}; null for unknown values. Durations are in seconds.
nlohmann::ordered_json EntryToJson(const HistoryEntry& entry);
Table HistoryTable(const std::vector<HistoryEntry>& entries);

}  // namespace cairn::cli

#endif  // CAIRN_CLI_VIEWS_HISTORY_VIEW_H_

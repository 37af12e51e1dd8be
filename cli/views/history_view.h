// Shows what was done with a job's checkpoints: one line for each operation that has ended.
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
  // The operation began then; if storage tells of it, it ended then.
  absl::Time time = absl::UnixEpoch();
  std::string result;  // "done", "deleted", or a reason as "RANK_LOST"
  std::string message;
  std::optional<absl::Duration> duration;
  uint64_t bytes = 0;
  uint32_t world_size = 0;
  // This part took longest among those that a rank ended, and this rank ended it.
  std::string slowest_phase;
  std::optional<uint32_t> slowest_rank;

  // Bytes in a second; nothing if it is not known, or if the operation was given up.
  std::optional<double> throughput() const;
};

HistoryEntry EntryOf(const v1::Timeline& timeline);
// Returns the saves that storage knows of, oldest first. Attempts without an outcome are left out.
std::vector<HistoryEntry> EntriesOf(const std::vector<StepRecord>& steps);

// Returns {"kind", "step", "attempt", "time", "result", "message", "duration", "bytes", "throughput", "world_size",
// "slowest_rank", "slowest_phase"}; null for what is not known. Durations are seconds.
nlohmann::ordered_json EntryToJson(const HistoryEntry& entry);
Table HistoryTable(const std::vector<HistoryEntry>& entries);

}  // namespace cairn::cli

#endif  // CAIRN_CLI_VIEWS_HISTORY_VIEW_H_

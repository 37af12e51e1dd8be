// Judges the measurements of `cairn doctor`. It measures nothing itself, so tests can give it any numbers.
#ifndef CAIRN_CLI_COMMANDS_DIAGNOSIS_H_
#define CAIRN_CLI_COMMANDS_DIAGNOSIS_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "agent/staging/huge_pages.h"
#include "agent/staging/memory_limit.h"
#include "cli/base/own_name.h"
#include "common/status/status.h"
#include "store/storage/storage_facts.h"

namespace cairn::cli {

struct Finding {
  enum class Level { kOk, kNote, kWarning, kFault };
  Level level = Level::kOk;
  std::string check;  // "free space"
  std::string text;   // the result, with its numbers
  std::string next;   // what the user should change; empty if nothing
};

// Returns "ok", "note", "warning" or "fault".
std::string LevelName(Finding::Level level);

// Each of these functions judges one measurement.

// `probe`: the result of PosixStorage::Open or ProbeAtomicCreate.
Finding JudgeRoot(const std::string& root, const absl::Status& probe);

// Judges whether there is room for checkpoints. `state`: the size of one checkpoint in bytes; 0 if not known.
Finding JudgeFreeSpace(const StorageFacts::FreeSpace& free, uint64_t state);

// `error`: the errno of a write with O_DIRECT; 0 if it succeeded.
Finding JudgeDirectIo(int error);

// Judges whether one agent's staging buffer fits into the memory of this container or machine. `rank_state`: the size
// of one rank's state in bytes; 0 if not known.
Finding JudgeMemory(const std::vector<MemoryLimit>& limits, uint64_t rank_state);

// Judges what pages a staging buffer on this machine has.
Finding JudgeHugePages(const HugePages& pages);

// `storage_ahead`: how far the storage's clock, which sets the times of files, is ahead of this machine's.
Finding JudgeClock(absl::Duration storage_ahead);

// Judges what uploads to an object store were left unfinished.
Finding JudgeUploads(const StorageFacts::Uploads& uploads, absl::Time now);

// Judges all facts that are known of a storage. `state`: as for JudgeFreeSpace.
std::vector<Finding> JudgeFacts(const StorageFacts& facts, uint64_t state, absl::Time now);

Finding JudgeOpenFiles(uint64_t limit);

// Judges whether ranks that find each other by this machine's name can do so.
Finding JudgeOwnName(const OwnName& own);

// Judges whether an agent notices at once that a trainer in another container ends. `by_kernel`: SO_PEERPIDFD works.
Finding JudgePidNamespaces(bool by_kernel);

Finding JudgeSockets(const std::string& directory, const absl::Status& made);

// `version`: the coordinator's version, or the error of asking for it.
Finding JudgeCoordinator(const std::string& address, const absl::StatusOr<std::string>& version);

// Judges whether the coordinator serves `root`. `served`: the path of the coordinator's root. `same`: whether that path
// is the same directory as `root` on this machine (by device and inode); nothing if the path does not exist here.
Finding JudgeServedRoot(const std::string& root, const std::string& served, std::optional<bool> same);

// `longest`: the duration of the longest save that the coordinator remembers; nothing if it remembers none.
Finding JudgeGracePeriod(absl::Duration grace, std::optional<absl::Duration> longest);
// Says why the grace period could not be compared with saves.
Finding GraceNotCompared(const std::string& why, const std::string& next);

// Says which job's checkpoint gave the size of the state if the user named none: the largest of `jobs`.
Finding NameMeasuredJob(const std::string& job, size_t jobs);
// `damaged`: how many of the job's newest checkpoints are damaged, up to the newest valid one. `valid`: the step of
// that one; nothing if there is none. Returns nothing if the newest checkpoint is valid.
std::optional<Finding> JudgeCheckpoints(const std::string& job, size_t damaged, std::optional<int64_t> valid,
                                        const std::string& root);
// Says that the job that the user named does not exist. `root`: empty if none was given.
Finding UnknownJob(const std::string& job, const std::string& root);

}  // namespace cairn::cli

#endif  // CAIRN_CLI_COMMANDS_DIAGNOSIS_H_

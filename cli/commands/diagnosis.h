// Judges what `cairn doctor` has measured. It measures nothing itself, so tests give it any machine.
#ifndef CAIRN_CLI_COMMANDS_DIAGNOSIS_H_
#define CAIRN_CLI_COMMANDS_DIAGNOSIS_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "agent/staging/memory_limit.h"
#include "cli/base/own_name.h"
#include "common/status/status.h"

namespace cairn::cli {

struct Finding {
  enum class Level { kOk, kNote, kWarning, kFault };
  Level level = Level::kOk;
  std::string check;  // "free space"
  std::string text;   // what was found, with its numbers
  std::string next;   // what to change; empty if nothing
};

// Returns "ok", "note", "warning" or "fault".
std::string LevelName(Finding::Level level);

// Each takes what was measured of one thing.

// `probe`: what PosixStorage::Open or ProbeAtomicCreate said.
Finding JudgeRoot(const std::string& root, const absl::Status& probe);

struct FreeSpace {
  uint64_t bytes = 0;   // that this user may write
  uint64_t inodes = 0;  // 0 of 0: the file system does not count them
  uint64_t all_inodes = 0;
};
// Judges whether there is room for checkpoints. One takes `state` bytes; 0 if that is not known.
Finding JudgeFreeSpace(const FreeSpace& free, uint64_t state);

// `error`: errno of a write with O_DIRECT; 0 if it went well.
Finding JudgeDirectIo(int error);

// Judges whether the memory of this container or machine holds the slab of one agent. One
// rank has `rank_state` bytes; 0 if that is not known.
Finding JudgeMemory(const std::vector<MemoryLimit>& limits, uint64_t rank_state);

// `storage_ahead`: how far the clock that dates files is ahead of this machine's.
Finding JudgeClock(absl::Duration storage_ahead);

Finding JudgeOpenFiles(uint64_t limit);

// Judges whether ranks that meet by the name of their machine will find each other.
Finding JudgeOwnName(const OwnName& own);

// Judges whether the end of a trainer in another PID namespace is seen at once: `by_kernel` if SO_PEERPIDFD works here.
Finding JudgePidNamespaces(bool by_kernel);

Finding JudgeSockets(const std::string& directory, const absl::Status& made);

// `versions`: what the coordinator runs.
Finding JudgeCoordinator(const std::string& address, const absl::StatusOr<std::string>& version);

// Judges whether the coordinator serves the root that was looked at. `same`: whether its path is, on this machine, the
// same directory (by device and inode); nothing if there is none.
Finding JudgeServedRoot(const std::string& root, const std::string& served, std::optional<bool> same);

// `longest`: of the saves that the coordinator remembers; nothing if it remembers none.
Finding JudgeGracePeriod(absl::Duration grace, std::optional<absl::Duration> longest);
// Says that the grace period was given, and why it could not be compared with saves.
Finding GraceNotCompared(const std::string& why, const std::string& next);

// Says whose checkpoint gave the size of the state, when nobody named a job: of `jobs` it is the only or the largest.
Finding NameMeasuredJob(const std::string& job, size_t jobs);
// `damaged`: so many of the job's newest checkpoints are damaged. `valid`: the step of the newest one that is valid;
// nothing if there is none. Nothing is found in a job whose newest checkpoint is valid.
std::optional<Finding> JudgeCheckpoints(const std::string& job, size_t damaged, std::optional<int64_t> valid,
                                        const std::string& root);
// Nobody knows the job that was named. `root`: empty if none was given.
Finding UnknownJob(const std::string& job, const std::string& root);

}  // namespace cairn::cli

#endif  // CAIRN_CLI_COMMANDS_DIAGNOSIS_H_

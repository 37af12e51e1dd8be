// Says where things lie below a root, and which names are valid. docs/storage_format.md describes the tree.
#ifndef CAIRN_COMMON_FORMAT_CHECKPOINT_PATH_H_
#define CAIRN_COMMON_FORMAT_CHECKPOINT_PATH_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace cairn {

inline constexpr int64_t kMaxStep = 999'999'999'999;
inline constexpr uint32_t kMaxAttempt = 9999;

// INVALID_ARGUMENT (BAD_JOB_NAME): the name is not segments of [a-z0-9][a-z0-9._-]* joined by '/', is longer than 200
// bytes, or has a segment of exactly twelve digits.
absl::Status CheckJobName(std::string_view job);
// INVALID_ARGUMENT (BAD_STEP): it is not within 0..kMaxStep.
absl::Status CheckStep(int64_t step);

// "000000000042"
std::string StepName(int64_t step);
// "<job>/<step>"
std::string StepDirectory(std::string_view job, int64_t step);
// "<job>/<step>/0001"
std::string AttemptDirectory(std::string_view job, int64_t step, uint32_t attempt);
// "<job>/<step>/0001.verdict"
std::string OutcomePath(std::string_view job, int64_t step, uint32_t attempt);
// "<job>/<step>/0001.repaired": a manifest that a repair made from the attempt's bins, in place of a damaged outcome.
std::string RepairedPath(std::string_view job, int64_t step, uint32_t attempt);
// "<job>/<step>/0001.deleted": the record by which a committed attempt was deleted. Its outcome stays.
std::string DeletionPath(std::string_view job, int64_t step, uint32_t attempt);
// "<job>/<step>/pinned": whatever stands there keeps the step from being deleted.
std::string PinPath(std::string_view job, int64_t step);
inline constexpr std::string_view kPinName = "pinned";
// "<job>/<step>/NAME.tag": whatever stands there gives the step the name, and keeps it from being deleted.
std::string TagPath(std::string_view job, int64_t step, std::string_view tag);
// "<job>/.retention": the job's policy of what is kept.
std::string RetentionPath(std::string_view job);
// "rank00003-bin01". Part 0 is the bin's first file. A second shard of one name in a bin needs a further file: part 1
// is "rank00003-bin01-part2".
std::string BinName(int rank, int bin, int part = 0);

// Returns the step of a directory name like "000000000042"; nothing for another name.
std::optional<int64_t> ParseStepName(std::string_view name);
// Returns the attempt of "0001", "0001.verdict" or "0001.deleted"; nothing for another name.
std::optional<uint32_t> ParseAttemptName(std::string_view name);
std::optional<uint32_t> ParseOutcomeName(std::string_view name);
// Returns whether this is the name of a bin that is being written. In the directory of a committed attempt it is a
// second name of a whole bin, or left over.
bool IsPartialBinName(std::string_view name);
std::optional<uint32_t> ParseDeletionName(std::string_view name);
// Returns the tag of "NAME.tag"; nothing for another name, and for a tag that is none.
std::optional<std::string> ParseTagName(std::string_view name);

// INVALID_ARGUMENT (BAD_REQUEST): the tag is not up to 64 letters, digits, and characters of "._-", of which the first
// is a letter; or it is "latest".
absl::Status CheckTag(std::string_view tag);

struct CheckpointName {
  std::string job;
  std::optional<int64_t> step;
  // The name in "JOB@NAME". Otherwise it is empty.
  std::string tag;
  // True for "JOB@latest". Commands that read a checkpoint take "JOB" alone for the same; those that change one do not.
  bool latest = false;
};
// Reads "JOB@STEP", "JOB@latest", "JOB@NAME" of a tag, or "JOB" alone. INVALID_ARGUMENT (BAD_JOB_NAME, BAD_STEP).
absl::StatusOr<CheckpointName> ParseCheckpointName(std::string_view text);

}  // namespace cairn

#endif  // CAIRN_COMMON_FORMAT_CHECKPOINT_PATH_H_

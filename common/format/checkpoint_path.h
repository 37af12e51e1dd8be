// Makes and parses the paths of files below a root, and checks names. docs/storage_format.md describes the tree.
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
// "<job>/<step>/0001.repaired": a manifest that a repair made from the attempt's bins. It replaces a damaged outcome.
std::string RepairedPath(std::string_view job, int64_t step, uint32_t attempt);
// "<job>/<step>/0001.deleted": the record that a committed attempt was deleted. Its outcome stays.
std::string DeletionPath(std::string_view job, int64_t step, uint32_t attempt);
// "<job>/<step>/pinned": if anything exists at this path, the step is not deleted.
std::string PinPath(std::string_view job, int64_t step);
inline constexpr std::string_view kPinName = "pinned";
// "<job>/<step>/NAME.tag": if anything exists at this path, the step has the tag NAME and is not deleted.
std::string TagPath(std::string_view job, int64_t step, std::string_view tag);
// "<job>/.retention": the job's policy of which checkpoints are kept.
std::string RetentionPath(std::string_view job);
// "rank00003-bin01". Part 0 is the bin's first file. A second shard of one name in a bin needs a further file: part 1
// is "rank00003-bin01-part2".
std::string BinName(int rank, int bin, int part = 0);

// Returns the step of a directory name like "000000000042"; nothing for another name.
std::optional<int64_t> ParseStepName(std::string_view name);
// Returns the attempt of "0001", "0001.verdict" or "0001.deleted"; nothing for another name.
std::optional<uint32_t> ParseAttemptName(std::string_view name);
std::optional<uint32_t> ParseOutcomeName(std::string_view name);
std::optional<uint32_t> ParseDeletionName(std::string_view name);
// Returns the tag of "NAME.tag"; nothing for another name, and for a tag that CheckTag refuses.
std::optional<std::string> ParseTagName(std::string_view name);

// A tag has 1 to 64 letters, digits, and characters of "._-", and begins with a letter. INVALID_ARGUMENT (BAD_REQUEST):
// the text is no such tag, or is "latest".
absl::Status CheckTag(std::string_view tag);

struct CheckpointName {
  std::string job;
  std::optional<int64_t> step;
  // The NAME of "JOB@NAME"; else empty.
  std::string tag;
  // True for "JOB@latest". Commands that only read a checkpoint treat "JOB" alone in the same way.
  bool latest = false;
};
// Reads "JOB@STEP", "JOB@latest", "JOB@NAME" of a tag, or "JOB" alone. INVALID_ARGUMENT (BAD_JOB_NAME, BAD_STEP).
absl::StatusOr<CheckpointName> ParseCheckpointName(std::string_view text);

}  // namespace cairn

#endif  // CAIRN_COMMON_FORMAT_CHECKPOINT_PATH_H_

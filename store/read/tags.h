// Finds checkpoints by the names that people gave them: "JOB@NAME".
#ifndef CAIRN_STORE_READ_TAGS_H_
#define CAIRN_STORE_READ_TAGS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace cairn {

struct StepTags {
  int64_t step = 0;
  std::vector<std::string> tags;
  // The error if storage could not list the tags, so that they are not known; else OK.
  absl::Status unread = absl::OkStatus();
};

// Returns the step that has the tag. `steps` are those of the job that are committed or damaged. NOT_FOUND
// (NOT_COMMITTED): no step has it; the message names the tags that exist. If no step is known to have it and the tags
// of some step are not known, the error is `unread` of that step. INVALID_ARGUMENT (BAD_REQUEST): several steps have
// it, which two coordinators may cause on a file system whose locks do not reach all machines.
absl::StatusOr<int64_t> FindTag(const std::string& job, const std::string& tag, const std::vector<StepTags>& steps);

}  // namespace cairn

#endif  // CAIRN_STORE_READ_TAGS_H_

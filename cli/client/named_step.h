// Finds the step that a command is to change.
#ifndef CAIRN_CLI_CLIENT_NAMED_STEP_H_
#define CAIRN_CLI_CLIENT_NAMED_STEP_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cli/client/coordinator_client.h"
#include "common/format/checkpoint_path.h"

namespace cairn::cli {

// Returns which of the checkpoints of a job has the tag. Errors as those of store/read/tags.h.
absl::StatusOr<int64_t> TaggedStep(const CheckpointName& name, const std::vector<v1::Checkpoint>& listed);

// Returns the name with the step in place of the tag, if it has one.
absl::StatusOr<CheckpointName> WithoutTag(CoordinatorClient& client, const CheckpointName& name);

// Returns the step of "JOB@STEP" or of "JOB@TAG"; of "JOB@latest" the one that the coordinator says is the latest.
// `verb`: what is done to it, for the error. INVALID_ARGUMENT (BAD_REQUEST): the name is a job's alone. NOT_FOUND
// (NOT_COMMITTED): the job has no checkpoint.
absl::StatusOr<int64_t> NamedStep(CoordinatorClient& client, const CheckpointName& name, const std::string& verb);

}  // namespace cairn::cli

#endif  // CAIRN_CLI_CLIENT_NAMED_STEP_H_

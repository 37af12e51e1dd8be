// Finds the step that a command's argument names.
#ifndef CAIRN_CLI_CLIENT_NAMED_STEP_H_
#define CAIRN_CLI_CLIENT_NAMED_STEP_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cli/client/coordinator_client.h"
#include "common/format/checkpoint_path.h"

namespace cairn::cli {

// Returns the step of the checkpoint in `listed` that has the tag of `name`. Fails as FindTag.
absl::StatusOr<int64_t> TaggedStep(const CheckpointName& name, const std::vector<v1::Checkpoint>& listed);

// Returns the name; if it has a tag, with the tag's step instead.
absl::StatusOr<CheckpointName> WithoutTag(CoordinatorClient& client, const CheckpointName& name);

// Returns the step that "JOB@STEP", "JOB@TAG" or "JOB@latest" names; the coordinator knows which is the latest. `verb`:
// what the command does to the step, for the error. INVALID_ARGUMENT (BAD_REQUEST): the name is only a job. NOT_FOUND
// (NOT_COMMITTED): the job has no checkpoint.
absl::StatusOr<int64_t> NamedStep(CoordinatorClient& client, const CheckpointName& name, const std::string& verb);

}  // namespace cairn::cli

#endif  // CAIRN_CLI_CLIENT_NAMED_STEP_H_

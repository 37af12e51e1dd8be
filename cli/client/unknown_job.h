// Checks that a job exists.
#ifndef CAIRN_CLI_CLIENT_UNKNOWN_JOB_H_
#define CAIRN_CLI_CLIENT_UNKNOWN_JOB_H_

#include <string>

#include "absl/status/status.h"
#include "cli/client/coordinator_client.h"
#include "store/storage/storage.h"

namespace cairn::cli {

// NOT_FOUND (JOB_NOT_FOUND): storage has no directory of the job.
absl::Status CheckJobIn(Storage& storage, const std::string& job);
// NOT_FOUND (JOB_NOT_FOUND): there is neither an agent nor a checkpoint of the job. Else the errors of the call.
absl::Status CheckJobOf(CoordinatorClient& client, const std::string& job);

}  // namespace cairn::cli

#endif  // CAIRN_CLI_CLIENT_UNKNOWN_JOB_H_

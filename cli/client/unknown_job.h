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
// NOT_FOUND (JOB_NOT_FOUND): the coordinator has no agent of the job, and storage has no checkpoint of it. Also fails
// with the errors of the call.
absl::Status CheckJobOf(CoordinatorClient& client, const std::string& job);

}  // namespace cairn::cli

#endif  // CAIRN_CLI_CLIENT_UNKNOWN_JOB_H_

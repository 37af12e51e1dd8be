// The answer to a question about a job that nobody knows.
#ifndef CAIRN_CLI_CLIENT_UNKNOWN_JOB_H_
#define CAIRN_CLI_CLIENT_UNKNOWN_JOB_H_

#include <string>

#include "absl/status/status.h"
#include "cli/client/coordinator_client.h"
#include "store/storage/storage.h"

namespace cairn::cli {

// NOT_FOUND (JOB_NOT_FOUND): nothing of the job stands in storage.
absl::Status CheckJobIn(Storage& storage, const std::string& job);
// NOT_FOUND (JOB_NOT_FOUND): the coordinator has no agent of the job, and storage nothing. Errors of the call.
absl::Status CheckJobOf(CoordinatorClient& client, const std::string& job);

}  // namespace cairn::cli

#endif  // CAIRN_CLI_CLIENT_UNKNOWN_JOB_H_

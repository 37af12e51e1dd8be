// Decides which foreign files a load may read with the agent's rights.
#ifndef CAIRN_AGENT_EXECUTION_IMPORT_PERMISSION_H_
#define CAIRN_AGENT_EXECUTION_IMPORT_PERMISSION_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "cairn/v1/plan.pb.h"

namespace cairn {

// An agent that serves its own user alone may import whatever that user can read. One that serves other users too could
// read for them what they cannot read themselves, so it imports only from below `import_roots`. Paths are compared as
// they are written, which is enough as no symbolic link is followed when they are opened. Files of the job's own
// checkpoints have no full names (common/format/full_name.h) and are always allowed.
//
// PERMISSION_DENIED (PEER_UID): names the rank and the first file that may not be imported.
absl::Status CheckImports(const v1::ReadPlan& plan, uint32_t rank, bool serves_other_users,
                          const std::vector<std::string>& import_roots);

}  // namespace cairn

#endif  // CAIRN_AGENT_EXECUTION_IMPORT_PERMISSION_H_

// Describes for people how the steps of a job stand at a mirror: pure.
#ifndef CAIRN_STORE_MIRROR_MIRROR_LISTING_H_
#define CAIRN_STORE_MIRROR_MIRROR_LISTING_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "cairn/v1/checkpoint_service.pb.h"
#include "store/mirror/mirror_job.h"
#include "store/mirror/mirror_rule.h"

namespace cairn {

// Says how a step of the root stands at the mirror, while it is not being copied.
v1::MirroredCheckpoint DescribeCopy(const MirrorJob& job, const MirrorRule& rule, int64_t step);

// Returns the checkpoints of `job` that only the mirror has, ascending. `address`: the mirror's full name.
std::vector<v1::Checkpoint> ListOnlyThere(const MirrorJob& seen, const std::string& job, const std::string& address);

// Says what a person should know of work that could not be done, and that is tried again; OK if there is none.
absl::Status DescribeUndone(const MirrorJob& job, const std::string& address);

}  // namespace cairn

#endif  // CAIRN_STORE_MIRROR_MIRROR_LISTING_H_

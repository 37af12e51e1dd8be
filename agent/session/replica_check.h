// Lists what a trainer checksums while it saves, so that what ranks declare as the same can be compared.
#ifndef CAIRN_AGENT_SESSION_REPLICA_CHECK_H_
#define CAIRN_AGENT_SESSION_REPLICA_CHECK_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "agent/session/save_image.h"
#include "cairn/v1/agent_coordination_service.pb.h"
#include "cairn/v1/local_agent_service.pb.h"

namespace cairn {

// Items of one save by their numbers in the layout.
//
// Shared objects are in `must` whatever is asked and whoever writes them: the list of them follows from the layout
// alone, so no change of plans on the way can leave one out.
struct ReplicaChecklist {
  // They ascend.
  std::vector<uint32_t> must;
  // Shards that the trainer may check as far as its time allows, beginning with the first.
  std::vector<uint32_t> may;
  // `must` has every shard of the image that its rank holds and does not stage.
  bool all = false;
};

// The most shards that one save may sample.
inline constexpr size_t kMostSampled = 256;

// With `check_all` every replica must be checked. With `sample` shards may be checked in rotation, from number `first`
// on.
ReplicaChecklist MakeReplicaChecklist(const SaveImage& image, bool check_all, bool sample, uint32_t first);

// Takes what the trainer found, as the coordinator is told.
// INVALID_ARGUMENT (BAD_REQUEST): another number of checksums than was asked for. `request.object_bytes` is valid.
absl::Status TakeReplicaChecksums(const ReplicaChecklist& checklist, const RankLayout& layout,
                                  const v1::CommitStagingRequest& request, std::vector<v1::ReplicaChecksum>& checksums);

}  // namespace cairn

#endif  // CAIRN_AGENT_SESSION_REPLICA_CHECK_H_

// Makes the source of the shards that move over NCCL in one attempt of a save.
#ifndef CAIRN_AGENT_TRANSPORT_NCCL_NCCL_SHARDS_H_
#define CAIRN_AGENT_TRANSPORT_NCCL_NCCL_SHARDS_H_

#include <memory>

#include "agent/session/action.h"
#include "agent/staging/shared_memory.h"
#include "agent/transport/shard_source.h"
#include "agent/transport/transfer_context.h"
#include "gpu/nccl/group_keeper.h"

namespace cairn {

// The order has an exchange. Shards that do not come over it come from `host`, which is not null. The source keeps the
// gate of the exchange, if that is this rank's part. The trainer has staged into `slab`. The context and the groups
// outlive the source.
std::unique_ptr<ShardSource> MakeNcclShards(const TransferContext& context, GroupKeeper& groups,
                                            const action::StartWrite& order, std::shared_ptr<SharedMemory> slab,
                                            std::unique_ptr<ShardSource> host);

}  // namespace cairn

#endif  // CAIRN_AGENT_TRANSPORT_NCCL_NCCL_SHARDS_H_

// Limits of GetTransferPeers. Together they keep each response below the message limit.
#ifndef CAIRN_COMMON_RPC_PEER_LIMITS_H_
#define CAIRN_COMMON_RPC_PEER_LIMITS_H_

#include <cstddef>

namespace cairn {

// The maximum number of ranks in one request.
inline constexpr size_t kMaxTransferPeers = 4096;
// The maximum sizes of what an agent says about itself when it registers.
inline constexpr size_t kMaxTransferAddressBytes = 300;
inline constexpr size_t kMaxDescriptorSocketBytes = 400;
inline constexpr size_t kMaxBootIdBytes = 64;
// The maximum size of the name of the agent's machine.
inline constexpr size_t kMaxNodeBytes = 255;

}  // namespace cairn

#endif  // CAIRN_COMMON_RPC_PEER_LIMITS_H_

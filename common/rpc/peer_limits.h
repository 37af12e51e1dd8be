// Bounds what one GetTransferPeers may ask for and be answered. The limits together keep each answer below the message
// limit.
#ifndef CAIRN_COMMON_RPC_PEER_LIMITS_H_
#define CAIRN_COMMON_RPC_PEER_LIMITS_H_

#include <cstddef>

namespace cairn {

// One request names at most so many ranks.
inline constexpr size_t kMaxTransferPeers = 4096;
// These bound what an agent may say of itself at its registration.
inline constexpr size_t kMaxTransferAddressBytes = 300;
inline constexpr size_t kMaxDescriptorSocketBytes = 400;
inline constexpr size_t kMaxBootIdBytes = 64;
// The name of its machine may have so many bytes.
inline constexpr size_t kMaxNodeBytes = 255;

}  // namespace cairn

#endif  // CAIRN_COMMON_RPC_PEER_LIMITS_H_

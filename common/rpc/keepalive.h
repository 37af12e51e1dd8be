// How often the two ends of a connection check that the other one is alive.
#ifndef CAIRN_COMMON_RPC_KEEPALIVE_H_
#define CAIRN_COMMON_RPC_KEEPALIVE_H_

namespace cairn {

// Client and server must agree: a server that allows fewer pings than its clients send cuts healthy connections with
// "too many pings" (gRPC doc/keepalive.md).
inline constexpr int kKeepaliveMs = 10'000;
inline constexpr int kKeepaliveTimeoutMs = 5'000;
inline constexpr int kMinPingIntervalMs = 5'000;

}  // namespace cairn

#endif  // CAIRN_COMMON_RPC_KEEPALIVE_H_

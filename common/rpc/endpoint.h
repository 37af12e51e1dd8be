// Makes servers and channels with the settings that both sides must share: message limits, keepalive, no compression.
#ifndef CAIRN_COMMON_RPC_ENDPOINT_H_
#define CAIRN_COMMON_RPC_ENDPOINT_H_

#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/rpc/peer_keys.h"

namespace cairn {

// The limit of one message on every connection between machines. Larger things travel in chunks.
inline constexpr int kMaxMessageBytes = 4 << 20;
inline constexpr uint32_t kProtocolVersion = 1;

// Prepares a builder: it sets limits and a keepalive that fits MakeChannel's, allows no compression (a small message
// could swell to hundreds of megabytes), and lets no other process share the port. Starts the timer of held calls. The
// caller adds ports and services.
void ConfigureServer(grpc::ServerBuilder& builder, int max_message_bytes = kMaxMessageBytes);

// FAILED_PRECONDITION (NOT_LOOPBACK): `address` ("host:port", "[::1]:0") is not on loopback and there is no token file.
absl::Status CheckListenAddress(std::string_view address, bool has_token_file);

// Returns the settings of a channel. If a peer vanishes without a word, the channel notices it within 15 s.
grpc::ChannelArguments ChannelArgumentsOf(int max_message_bytes);

// Returns a channel to "host:port" or "unix:/path" that gRPC connects, so nobody proves anything: for the sockets of
// this user, and for tests. Between machines PeerChannel is right. Never blocks.
std::shared_ptr<grpc::Channel> MakeChannel(const std::string& address, int max_message_bytes = kMaxMessageBytes);

// Sets the deadline of a call.
void PrepareCall(grpc::ClientContext& context, absl::Duration timeout);

// Returns what a failed call means: the server's own reason if it gave one. If the server could not be reached or did
// not answer in time, it is COORDINATOR_UNREACHABLE or AGENT_UNREACHABLE, by `role`, and says in words what `peer`
// does; the metadata's "detail" has gRPC's own text. A coordinator that does not know the call is UNSUPPORTED; anything
// else that does not know it is no agent: AGENT_UNREACHABLE.
absl::Status CallError(const grpc::Status& status, ServerRole role, std::string_view peer);

}  // namespace cairn

#endif  // CAIRN_COMMON_RPC_ENDPOINT_H_

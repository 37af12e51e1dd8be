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

// The maximum size of one message on connections between machines. Larger data is sent in chunks.
inline constexpr int kMaxMessageBytes = 4 << 20;
inline constexpr uint32_t kProtocolVersion = 1;

// Prepares a builder: sets message limits and a keepalive that fits MakeChannel's, forbids compression (a small message
// could decompress to hundreds of megabytes), and forbids other processes to share the port. Starts the timer of held
// calls. The caller adds ports and services.
void ConfigureServer(grpc::ServerBuilder& builder, int max_message_bytes = kMaxMessageBytes);

// FAILED_PRECONDITION (NOT_LOOPBACK): `address` ("host:port", "[::1]:0") is not on loopback and there is no token file.
absl::Status CheckListenAddress(std::string_view address, bool has_token_file);

// Returns the settings of a channel. The channel notices within 15 s that a peer does not respond any more.
grpc::ChannelArguments ChannelArgumentsOf(int max_message_bytes);

// Returns a channel to "host:port" or "unix:/path" without any proof of identity: for Unix sockets of this user, and
// for tests. Between machines use PeerChannel. Never blocks.
std::shared_ptr<grpc::Channel> MakeChannel(const std::string& address, int max_message_bytes = kMaxMessageBytes);

// Sets the deadline of a call.
void PrepareCall(grpc::ClientContext& context, absl::Duration timeout);

// Converts the status of a failed call. If the server gave a reason, the result has that reason. If the server could
// not be reached or did not answer in time, the result is COORDINATOR_UNREACHABLE or AGENT_UNREACHABLE, by `role`; its
// message says in words what `peer` does, and the metadata "detail" has gRPC's text. If a coordinator does not know the
// method, the result is UNSUPPORTED. If an agent's address does not know it, there is no agent: AGENT_UNREACHABLE.
absl::Status CallError(const grpc::Status& status, ServerRole role, std::string_view peer);

}  // namespace cairn

#endif  // CAIRN_COMMON_RPC_ENDPOINT_H_

#include "common/rpc/endpoint.h"

#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "common/rpc/address.h"
#include "common/rpc/call_timer.h"
#include "common/rpc/grpc_status.h"
#include "common/rpc/keepalive.h"
#include "common/status/reason.h"

namespace cairn {
namespace {

// The details of an error may take 2 KiB. gRPC's default limit for all metadata, 8 KiB, leaves too little room.
constexpr int kMaxMetadataBytes = 64 << 10;

// Says in words why a peer could not be called. gRPC's own text is written for programmers of gRPC.
std::string UnreachableText(const absl::Status& error) {
  if (absl::IsDeadlineExceeded(error)) return "did not answer in time: it is stopped, frozen or very busy";
  if (absl::StrContains(error.message(), "Failed parsing HTTP/2"))
    return "is not there: something else answers at that address";
  // These are texts of gRPC for a connection that existed when the call began. python/cairn/_agent/connection.py has a
  // longer table, for Unix sockets, which gRPC connects itself.
  for (const char* text : {"keepalive", "Ping timeout", "imeout", "timed out"}) {
    if (absl::StrContains(error.message(), text)) {
      return "does not answer any more: it is stopped or frozen, or the network lost it";
    }
  }
  return "has closed the connection: it has ended, or ends";
}

}  // namespace

void ConfigureServer(grpc::ServerBuilder& builder, int max_message_bytes) {
  builder.SetMaxReceiveMessageSize(max_message_bytes);
  builder.SetMaxSendMessageSize(max_message_bytes);
  builder.SetDefaultCompressionAlgorithm(GRPC_COMPRESS_NONE);
  builder.SetCompressionAlgorithmSupportStatus(GRPC_COMPRESS_GZIP, false);
  builder.SetCompressionAlgorithmSupportStatus(GRPC_COMPRESS_DEFLATE, false);
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveMs);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMs);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, kMinPingIntervalMs);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  // Starts the timer's thread now: the system may refuse a thread later, and now the process can still end.
  CallTimer::OfProcess();
  // The system's abseil is built like a debug build: it checks for deadlocks whenever gRPC takes a second lock.
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
}

absl::Status CheckListenAddress(std::string_view address, bool has_token_file) {
  const absl::string_view text(address.data(), address.size());
  if (has_token_file || IsLoopback(address)) return absl::OkStatus();
  return MakeError(Reason::kNotLoopback,
                   absl::StrCat("--listen ", text, " is not on loopback and there is no --token-file"));
}

grpc::ChannelArguments ChannelArgumentsOf(int max_message_bytes) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(max_message_bytes);
  arguments.SetMaxSendMessageSize(max_message_bytes);
  arguments.SetInt(GRPC_ARG_MAX_METADATA_SIZE, kMaxMetadataBytes);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveMs);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMs);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  return arguments;
}

std::shared_ptr<grpc::Channel> MakeChannel(const std::string& address, int max_message_bytes) {
  grpc::ChannelArguments arguments = ChannelArgumentsOf(max_message_bytes);
  // Tries a restarted peer again soon. Channels of one process do not share a connection, because a connection may
  // hang.
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  // gRPC uses this setting twice: as the time for an attempt to connect, handshake included, and as the least time
  // between two attempts (connection-backoff.md). With less, a busy machine never connects; with more, a restarted peer
  // is found late.
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 1000);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1000);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
}

void PrepareCall(grpc::ClientContext& context, absl::Duration timeout) {
  context.set_deadline(std::chrono::system_clock::now() + absl::ToChronoMicroseconds(timeout));
}

absl::Status CallError(const grpc::Status& status, ServerRole role, std::string_view peer) {
  absl::Status error = FromGrpcStatus(status);
  if (error.ok() || ReasonOf(error)) return error;
  const bool coordinator = role == ServerRole::kCoordinator;
  const std::string who = absl::StrCat(coordinator ? "coordinator " : "agent ", std::string(peer));
  if (absl::IsUnavailable(error) || absl::IsDeadlineExceeded(error)) {
    return MakeError(coordinator ? Reason::kCoordinatorUnreachable : Reason::kAgentUnreachable,
                     absl::StrCat(who, " ", UnreachableText(error)),
                     {{"address", std::string(peer)}, {"detail", std::string(error.message())}});
  }
  // Errors of gRPC itself have no reason.
  if (absl::IsResourceExhausted(error)) {
    return MakeError(Reason::kMessageTooLarge, absl::StrCat(who, ": ", error.message()));
  }
  if (absl::IsUnimplemented(error)) {
    if (coordinator) return MakeError(Reason::kUnsupported, absl::StrCat(who, ": ", error.message()));
    // After an agent has ended, another program may listen on its port.
    return MakeError(Reason::kAgentUnreachable,
                     absl::StrCat(who, " is not there: what listens at its address does not know the call"),
                     {{"address", std::string(peer)}});
  }
  if (absl::IsCancelled(error))
    return MakeError(Reason::kInterrupted, absl::StrCat("the call to ", who, " was cancelled"));
  // Every error of Cairn's servers has a reason, so this error comes from another server.
  return MakeError(coordinator ? Reason::kCoordinatorUnreachable : Reason::kAgentUnreachable,
                   absl::StrCat(who, " is not there: something else answers at that address"),
                   {{"address", std::string(peer)}, {"detail", std::string(error.message())}});
}

}  // namespace cairn

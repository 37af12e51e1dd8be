// A gRPC channel to a peer. It connects again when the connection is lost. Each time the two ends prove themselves to
// each other first (peer_proof.h).
//
// gRPC's own channels (1.51) connect by themselves, so no handshake of Cairn could run before HTTP/2. Therefore this
// class makes the connection and gives gRPC the socket. Such a grpc::Channel never reconnects: when its connection is
// lost, its calls fail, and the next Get makes another channel.
#ifndef CAIRN_COMMON_RPC_PEER_CHANNEL_H_
#define CAIRN_COMMON_RPC_PEER_CHANNEL_H_

#include <grpcpp/grpcpp.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/mutex.h"
#include "common/rpc/endpoint.h"
#include "common/rpc/peer_dial.h"
#include "common/rpc/token_source.h"

namespace cairn {

struct PeerOptions {
  std::string address;  // "host:port"
  ServerRole role = ServerRole::kCoordinator;
  std::string name;  // for errors; empty: the address
  // The tokens for the proof. With --insecure the connection is plain.
  std::shared_ptr<TokenSource> tokens;
  // If true, the connection is also plain if no token is found; the peer then says that a token is needed. Only for
  // commands of people. A process that obeys its peer must not set this.
  bool plain_without_token = false;
  int max_message_bytes = kMaxMessageBytes;
};

// Thread-safe. Make it by std::make_shared.
class PeerChannel : public std::enable_shared_from_this<PeerChannel> {
 public:
  using Channel = std::shared_ptr<grpc::Channel>;
  using Ready = std::function<void(absl::StatusOr<Channel>)>;

  // The maximum time of one attempt to connect.
  static constexpr absl::Duration kPatience = absl::Seconds(5);

  explicit PeerChannel(PeerOptions options);
  ~PeerChannel();

  // Passes a channel to `ready`. If there is one with a live connection, it calls `ready` at once, on this thread. Else
  // it begins an attempt to connect, and calls `ready` on another thread when the attempt succeeds or fails. All
  // callers that wait share one attempt. After a failed attempt, the next call of Get begins another one. Does not
  // block. Errors: those of DialPeer. CANCELLED (INTERRUPTED): after Cancel. RESOURCE_EXHAUSTED (MEMORY_LIMIT): there
  // is no thread for the attempt.
  void Get(Ready ready);
  // Does the same as Get, but blocks and returns the channel. After `patience` it returns COORDINATOR_UNREACHABLE or
  // AGENT_UNREACHABLE, and the attempt continues for other callers.
  absl::StatusOr<Channel> Await(absl::Duration patience = kPatience);
  // Returns the channel if there is one; else begins an attempt, and returns null.
  Channel GetIfReady();

  // Makes the next Get connect again. Calls on the present connection continue.
  void Renew();
  // Ends a running attempt. All waiting callers and all later calls get INTERRUPTED. Idempotent.
  void Cancel();

  const std::string& address() const { return options_.address; }
  const std::string& name() const { return options_.name; }

 private:
  struct Attempt;

  // Returns the channel if its connection is alive, else null.
  Channel Standing() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Blocks. Makes one connection.
  static absl::StatusOr<UniqueFd> Dial(const PeerOptions& options, int cancelled);
  void Ended(const std::shared_ptr<Attempt>& attempt, absl::StatusOr<UniqueFd> connection);

  const PeerOptions options_;
  Mutex mutex_;
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  Channel channel_ ABSL_GUARDED_BY(mutex_);
  // A second descriptor of the channel's connection. It shows whether the connection has ended.
  UniqueFd watch_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<Attempt> attempt_ ABSL_GUARDED_BY(mutex_);  // that runs now, or null
};

}  // namespace cairn

#endif  // CAIRN_COMMON_RPC_PEER_CHANNEL_H_

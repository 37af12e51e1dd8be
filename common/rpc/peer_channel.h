// A connection to a peer that is made again when it is gone, and that has proven itself (peer_proof.h) each time.
//
// gRPC's own channels (1.51) connect by themselves, and no handshake of ours can run before HTTP/2. So this class makes
// the connection, and gives gRPC the socket. Such a channel never connects again: when its connection is gone, its
// calls fail, and the next one gets another channel here.
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
  // By these the two prove themselves to each other. With --insecure the connection is plain.
  std::shared_ptr<TokenSource> tokens;
  // Whether the connection is plain, too, if no token is found. That is for people, who hear then that a token is
  // needed. Whoever obeys the peer must not do so.
  bool plain_without_token = false;
  int max_message_bytes = kMaxMessageBytes;
};

// Thread-safe. Make it by std::make_shared.
class PeerChannel : public std::enable_shared_from_this<PeerChannel> {
 public:
  using Channel = std::shared_ptr<grpc::Channel>;
  using Ready = std::function<void(absl::StatusOr<Channel>)>;

  // An attempt to connect takes at most so long.
  static constexpr absl::Duration kPatience = absl::Seconds(5);

  explicit PeerChannel(PeerOptions options);
  // As Cancel.
  ~PeerChannel();

  // Gives `ready` a channel: at once, on this thread, if there is one whose connection stands; else, on another thread,
  // when one was made or the attempt has failed, as DialPeer does. All callers that wait share one attempt, and after
  // one that has failed the next one begins with the next call. Does not block. CANCELLED (INTERRUPTED): after Cancel.
  // RESOURCE_EXHAUSTED (MEMORY_LIMIT): there is no thread for it.
  void Get(Ready ready);
  // The same; blocks for at most `patience`, beyond which the attempt goes on without this caller.
  absl::StatusOr<Channel> Await(absl::Duration patience = kPatience);
  // The channel if there is one; else begins to make one, and returns null.
  Channel GetIfReady();

  // The next call gets another connection. Calls over the present one go on.
  void Renew();
  // Ends the attempt that is under way; all who wait, and who come later, get INTERRUPTED. Idempotent.
  void Cancel();

  const std::string& address() const { return options_.address; }
  const std::string& name() const { return options_.name; }

 private:
  struct Attempt;

  // The channel, if its connection stands.
  Channel Standing() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // On a thread that may block.
  static absl::StatusOr<UniqueFd> Dial(const PeerOptions& options, int cancelled);
  void Ended(const std::shared_ptr<Attempt>& attempt, absl::StatusOr<UniqueFd> connection);

  const PeerOptions options_;
  Mutex mutex_;
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  Channel channel_ ABSL_GUARDED_BY(mutex_);
  // Another descriptor of its connection, by which its end is seen.
  UniqueFd watch_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<Attempt> attempt_ ABSL_GUARDED_BY(mutex_);  // under way
};

}  // namespace cairn

#endif  // CAIRN_COMMON_RPC_PEER_CHANNEL_H_

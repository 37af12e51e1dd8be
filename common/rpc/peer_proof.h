// How the two ends of a new TCP connection prove to each other that they know the same token, before anything else is
// said on it. The token itself is never sent. Both sides are functions of the bytes that came: no socket, no clock.
//
//   client: hello    magic and version, a nonce, what it sees of the channel
//   server: answer   whether it has a token, a nonce, what it sees, and a MAC by its key of each of its tokens
//   client: proof    a MAC by its key of the token that agrees
//   server: outcome  one byte
//
// The construction is SKID3 (Menezes, van Oorschot, Vanstone: Handbook of Applied Cryptography, 10.17), which is the
// mutual authentication in three passes of ISO/IEC 9798-4, with HMAC-SHA256. A MAC covers everything that was said so
// far, so it is good for this connection only. Each direction, and each role of the server, has keys of its own
// (peer_keys.h), so that no answer can be sent back as a proof. The server proves itself first, and a client says
// nothing to one that does not.
//
// A relay that hands the bytes on changes nothing of this, but then the two ends see different addresses. A client that
// has called its own machine refuses that, because another user of the machine may have taken the address. Beyond the
// machine, networks rewrite addresses (NAT, Services of Kubernetes), and have to be trusted.
//
// What is sent allows whoever has it to test guesses of the token, so a token has to be random.
#ifndef CAIRN_COMMON_RPC_PEER_PROOF_H_
#define CAIRN_COMMON_RPC_PEER_PROOF_H_

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "common/rpc/channel_view.h"
#include "common/rpc/peer_keys.h"

namespace cairn {

inline constexpr size_t kNonceBytes = 32;

// Returns whether the first bytes of a connection, one at least, begin a proof. HTTP/2 begins otherwise ("PRI *").
bool IsHello(std::string_view first_bytes);

// What one side does next.
struct ProofStep {
  enum State {
    kMore,     // sends `send`, then wants `wanted` bytes
    kProven,   // sends `send`; then the connection is gRPC's
    kRefused,  // sends `send`, and closes the connection
  };
  State state = kMore;
  std::string send;
  // At most so many bytes may be read from the connection before the next Take; what follows may be gRPC's.
  size_t wanted = 0;
};

// One connection at the server. Not thread-safe.
class ServerProof {
 public:
  using Step = ProofStep;
  static constexpr size_t kHelloBytes = 8 + kNonceBytes + ChannelView::kBytes;
  static constexpr size_t kAnswerBytes = 1 + kNonceBytes + ChannelView::kBytes + kMaxServerTokens * kMacBytes;
  static constexpr size_t kProofBytes = kMacBytes;

  // Without `keys` (--insecure) the client is told that no token is asked for. `view`: ChannelView::OfSocket.
  ServerProof(std::shared_ptr<const PeerKeys> keys, ChannelView view);
  // For tests: with this nonce.
  ServerProof(std::shared_ptr<const PeerKeys> keys, ChannelView view, std::string nonce);

  // Takes the bytes that came next, the first kHelloBytes at the beginning, in pieces of any size. After kProven and
  // kRefused nothing may be taken any more. More bytes than were wanted are refused.
  Step Take(std::string_view bytes);

 private:
  Step TakeHello();
  Step TakeProof();

  const std::shared_ptr<const PeerKeys> keys_;
  const ChannelView view_;
  const std::string nonce_;
  std::string said_;      // by both sides; what is covered by the MACs
  std::string received_;  // of the message that comes now
  size_t expected_ = kHelloBytes;
};

// One connection at the client. Not thread-safe.
class ClientProof {
 public:
  using Step = ProofStep;
  // Why the server was refused.
  enum class Fault {
    kNone,
    kNoProof,       // it answers something else: no server of ours, or one of another version
    kOtherVersion,  // it is a server of another version
    kInsecure,      // it has no token
    kOtherToken,    // it does not know the token, or is another kind of server
    kRelayed,       // it knows the token, but the bytes go through another process of this machine
    kRefused,       // it knows the token, and refuses ours
  };

  // `within_machine`: whether the address that was called is one of this machine (IsOfThisMachine).
  ClientProof(std::shared_ptr<const PeerKeys> keys, ChannelView view, bool within_machine);
  // For tests: with this nonce.
  ClientProof(std::shared_ptr<const PeerKeys> keys, ChannelView view, bool within_machine, std::string nonce);

  // What to send, and to read, first.
  Step Begin();
  // As ServerProof::Take.
  Step Take(std::string_view bytes);

  Fault fault() const { return fault_; }

 private:
  Step TakeAnswer();
  Step TakeOutcome();
  Step Refuse(Fault fault);

  const std::shared_ptr<const PeerKeys> keys_;
  const ChannelView view_;
  const bool within_machine_;
  const std::string nonce_;
  std::string said_;
  std::string received_;
  size_t expected_ = ServerProof::kAnswerBytes;
  Fault fault_ = Fault::kNone;
};

}  // namespace cairn

#endif  // CAIRN_COMMON_RPC_PEER_PROOF_H_

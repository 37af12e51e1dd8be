// How the two ends of a new TCP connection prove to each other that they know the same token, before anything else is
// sent. The token itself is never sent. Both sides are pure: they use no socket and no clock, only the bytes that they
// are given.
//
//   client: hello    magic and version, a nonce, its ChannelView
//   server: answer   whether it has a token, a nonce, its ChannelView, and for each of its tokens a MAC by its own key
//   client: proof    a MAC by its own key of the token that both know
//   server: outcome  one byte
//
// The construction is SKID3 (Menezes, van Oorschot, Vanstone: Handbook of Applied Cryptography, 10.17), which is the
// mutual authentication in three passes of ISO/IEC 9798-4, with HMAC-SHA256. A MAC covers all earlier bytes of the
// connection, so it is valid for this connection only. Each direction, and each role of the server, has keys of its own
// (peer_keys.h), so that no answer can be sent back as a proof. The server proves itself first. A client sends no proof
// to a server that does not.
//
// A relay can forward the bytes of a proof, but then the two ends see different addresses. A client that calls an
// address of its own machine refuses such a connection, because another user of the machine may listen at the address.
// Between machines this cannot be checked, because networks rewrite addresses (NAT, Kubernetes Services); the network
// must be trusted.
//
// Whoever sees these messages can test guesses of the token, so a token must be random.
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

// Returns whether a connection's first bytes, at least one, begin a proof. HTTP/2 begins differently ("PRI *").
bool IsHello(std::string_view first_bytes);

// What one side of a proof must do next.
struct ProofStep {
  enum State {
    kMore,     // send `send`, then read up to `wanted` bytes
    kProven,   // send `send`, then give the connection to gRPC
    kRefused,  // send `send`, then close the connection
  };
  State state = kMore;
  std::string send;
  // The maximum number of bytes to read before the next Take. Bytes behind them may belong to gRPC.
  size_t wanted = 0;
};

// The server's side of one proof. Not thread-safe.
class ServerProof {
 public:
  using Step = ProofStep;
  static constexpr size_t kHelloBytes = 8 + kNonceBytes + ChannelView::kBytes;
  static constexpr size_t kAnswerBytes = 1 + kNonceBytes + ChannelView::kBytes + kMaxServerTokens * kMacBytes;
  static constexpr size_t kProofBytes = kMacBytes;

  // If `keys` is null (--insecure), the answer says that the server has no token. `view`: ChannelView::OfSocket.
  ServerProof(std::shared_ptr<const PeerKeys> keys, ChannelView view);
  // For tests: with this nonce.
  ServerProof(std::shared_ptr<const PeerKeys> keys, ChannelView view, std::string nonce);

  // Takes the next bytes of the client, in pieces of any size. At the beginning kHelloBytes are wanted. More bytes than
  // wanted are refused. Must not be called after kProven or kRefused.
  Step Take(std::string_view bytes);

 private:
  Step TakeHello();
  Step TakeProof();

  const std::shared_ptr<const PeerKeys> keys_;
  const ChannelView view_;
  const std::string nonce_;
  std::string said_;      // the bytes of both sides so far, which MACs cover
  std::string received_;  // the received part of the current message
  size_t expected_ = kHelloBytes;
};

// The client's side of one proof. Not thread-safe.
class ClientProof {
 public:
  using Step = ProofStep;
  // Why the server was refused.
  enum class Fault {
    kNone,
    kNoProof,       // its answer is no proof: not a server of Cairn, or one of another version
    kOtherVersion,  // it is a server of another version
    kInsecure,      // it has no token
    kOtherToken,    // it does not know the token, or is another kind of server
    kRelayed,       // it knows the token, but the bytes go through another process of this machine
    kRefused,       // it knows the token, but refuses the client's proof
  };

  // `within_machine`: whether the server's address is one of this machine (IsOfThisMachine).
  ClientProof(std::shared_ptr<const PeerKeys> keys, ChannelView view, bool within_machine);
  // For tests: with this nonce.
  ClientProof(std::shared_ptr<const PeerKeys> keys, ChannelView view, bool within_machine, std::string nonce);

  // Returns the first step.
  Step Begin();
  // Takes the next bytes of the server, as ServerProof::Take does those of the client.
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

// The keys by which two peers prove to each other that they know the same token. They are derived from the token.
// Whoever sees the messages of a proof can test guesses of the token, and learns nothing else about it.
#ifndef CAIRN_COMMON_RPC_PEER_KEYS_H_
#define CAIRN_COMMON_RPC_PEER_KEYS_H_

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace cairn {

// The kind of server at an address. Each role has its own keys, so that an agent cannot pose as a coordinator by the
// same token.
enum class ServerRole { kCoordinator, kAgent };

// The keys of one token. Immutable.
struct PeerKey {
  std::string server;  // for the server's proof
  std::string client;  // for the client's proof
};

// The maximum number of tokens that a server accepts: a new one, and the previous one while the new one is distributed.
inline constexpr size_t kMaxServerTokens = 2;

class PeerKeys {
 public:
  // Returns the keys of all `tokens`. There must be at least one token, and none may be empty. A server uses the first
  // kMaxServerTokens. A client that does not know which token is right may have more.
  static std::shared_ptr<const PeerKeys> Of(const std::vector<std::string>& tokens, ServerRole role);

  const std::vector<PeerKey>& keys() const { return keys_; }

 private:
  explicit PeerKeys(std::vector<PeerKey> keys) : keys_(std::move(keys)) {}

  const std::vector<PeerKey> keys_;
};

inline constexpr size_t kMacBytes = 32;

// Returns HMAC-SHA256 (RFC 2104) of `text`. Ends the process if memory is refused: no result would be safe.
std::string Mac(std::string_view key, std::string_view text);

// Compares two MACs in constant time: the time does not depend on where they differ.
bool SameMac(std::string_view one, std::string_view other);

}  // namespace cairn

#endif  // CAIRN_COMMON_RPC_PEER_KEYS_H_

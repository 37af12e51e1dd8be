// The keys by which two peers prove to each other that they know the same token. They are derived from it, so that
// nothing that is sent says more about the token than whether a guess of it is right.
#ifndef CAIRN_COMMON_RPC_PEER_KEYS_H_
#define CAIRN_COMMON_RPC_PEER_KEYS_H_

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace cairn {

// What answers at an address. Each role has keys of its own, so that an agent never passes for a coordinator, although
// both know the token.
enum class ServerRole { kCoordinator, kAgent };

// The keys of one token. Immutable.
struct PeerKey {
  std::string server;  // by which the server proves itself
  std::string client;  // by which its caller does
};

// A server has at most so many tokens at a time: a new one, and the one before while the new one is handed out.
inline constexpr size_t kMaxServerTokens = 2;

class PeerKeys {
 public:
  // Returns the keys of all `tokens`, which must not be empty, nor hold an empty one. A server uses the first
  // kMaxServerTokens; a client may have more, if it does not know which one is right.
  static std::shared_ptr<const PeerKeys> Of(const std::vector<std::string>& tokens, ServerRole role);

  const std::vector<PeerKey>& keys() const { return keys_; }

 private:
  explicit PeerKeys(std::vector<PeerKey> keys) : keys_(std::move(keys)) {}

  const std::vector<PeerKey> keys_;
};

inline constexpr size_t kMacBytes = 32;

// Returns HMAC-SHA256 (RFC 2104) of `text`. Ends the process if the system has no memory for it: no answer is safe.
std::string Mac(std::string_view key, std::string_view text);

// Compares in a time that does not depend on where the two differ.
bool SameMac(std::string_view one, std::string_view other);

}  // namespace cairn

#endif  // CAIRN_COMMON_RPC_PEER_KEYS_H_

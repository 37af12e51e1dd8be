// Finds the tokens by which a process proves itself to its peers: those of --token-file, or at the usual places.
#ifndef CAIRN_COMMON_RPC_TOKEN_SOURCE_H_
#define CAIRN_COMMON_RPC_TOKEN_SOURCE_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/mutex.h"
#include "common/file/confined_directory.h"
#include "common/rpc/peer_keys.h"
#include "common/rpc/token_directory.h"

namespace cairn {

// The path below a root where a coordinator keeps the token that it has made.
inline constexpr char kRootTokenPath[] = ".cairn/token";

// Returns the tokens of the root; makes one if there is none. Only the holder of the root's lock may call it.
// UNAUTHENTICATED (BAD_TOKEN): other users can read the file (the file system may not support modes), or the file does
// not hold one or two tokens. Else the errors of ConfinedDirectory.
absl::StatusOr<std::vector<std::string>> MakeRootToken(ConfinedDirectory& root);

struct TokenPlaces {
  bool insecure = false;  // --insecure: there is no token
  std::string file;       // --token-file; if empty, tokens are searched for:
  std::string address;    // first in the TokenDirectory, by the coordinator's address, if not empty,
  std::string root;       // then below this root, if not empty
};

// Tokens to try.
struct TokenCandidates {
  std::vector<std::string> tokens;
  std::string searched;  // says for people where no token was found, and why; empty with a file or --insecure
};
// UNAUTHENTICATED (BAD_TOKEN): `places.file` cannot be used.
absl::StatusOr<TokenCandidates> FindTokens(const TokenPlaces& places,
                                           const TokenDirectory& directory = TokenDirectory::OfThisUser());

// Adds to the message of `refused`, a BAD_TOKEN, where tokens were searched for.
absl::Status ExplainRefusal(const absl::Status& refused, const TokenCandidates& candidates);

// The tokens of a process: it proves itself by them, and others must prove themselves by them. They may change while it
// runs: an operator writes another token into the file, or another coordinator starts at the address. Thread-safe.
class TokenSource : public std::enable_shared_from_this<TokenSource> {
 public:
  // Fails as FindTokens.
  static absl::StatusOr<std::shared_ptr<TokenSource>> Open(TokenPlaces places);
  // Returns a source of fixed tokens. No tokens mean the same as --insecure.
  static std::shared_ptr<TokenSource> Of(std::vector<std::string> tokens);

  bool insecure() const { return places_.insecure; }
  std::vector<std::string> tokens() const;
  // Returns the keys of all current tokens; null if there is no token.
  std::shared_ptr<const PeerKeys> Keys(ServerRole role) const;

  // Reads all places again. Blocks. Returns whether the tokens have changed. If they cannot be read, the last ones stay
  // in use, and the log says so (token_unreadable).
  bool Reload();
  // Calls Reload on another thread, unless it is already running. A server calls this every few seconds.
  void ReloadSoon();

  // Adds to `refused`, a BAD_TOKEN, where tokens were searched for last.
  absl::Status Explain(const absl::Status& refused) const;

 private:
  TokenSource(TokenPlaces places, TokenCandidates candidates);
  void Take(TokenCandidates candidates) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const TokenPlaces places_;
  mutable Mutex mutex_;
  TokenCandidates candidates_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<const PeerKeys> coordinator_keys_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<const PeerKeys> agent_keys_ ABSL_GUARDED_BY(mutex_);
  bool reloading_ ABSL_GUARDED_BY(mutex_) = false;
  std::string told_ ABSL_GUARDED_BY(mutex_);  // the last error in the log; empty if there was none
};

}  // namespace cairn

#endif  // CAIRN_COMMON_RPC_TOKEN_SOURCE_H_

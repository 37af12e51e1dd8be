// Finds the tokens by which a process proves itself to its peers: those that it was given, or those that it finds.
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

// A coordinator keeps the token that it has made here, below its root.
inline constexpr char kRootTokenPath[] = ".cairn/token";

// Returns the tokens of the root, and makes one at the first call. Only the holder of the root's lock may call it.
// UNAUTHENTICATED (BAD_TOKEN): others can read it (the file system may keep no modes), or the file holds something else
// than one or two tokens. Else the errors of storage.
absl::StatusOr<std::vector<std::string>> MakeRootToken(ConfinedDirectory& root);

struct TokenPlaces {
  bool insecure = false;  // --insecure: there is no token
  std::string file;       // --token-file; without it the token is looked for
  std::string address;    // first by the coordinator's address in this user's runtime directory, if it is given,
  std::string root;       // then below this root, if it is given
};

// Tokens to try, best first; empty if none was found.
struct TokenCandidates {
  std::vector<std::string> tokens;
  std::string searched;  // tells people where there was no token, and why; empty with a file or --insecure
};
// UNAUTHENTICATED (BAD_TOKEN): the file that was named cannot be used.
absl::StatusOr<TokenCandidates> FindTokens(const TokenPlaces& places,
                                           const TokenDirectory& directory = TokenDirectory::OfThisUser());

// Adds to the message of `refused`, a BAD_TOKEN, where a token was looked for.
absl::Status ExplainRefusal(const absl::Status& refused, const TokenCandidates& candidates);

// The tokens of a process, by which it proves itself and asks others to. They may change while it runs: an operator
// writes another token into the file, or another coordinator comes to the address. Thread-safe.
class TokenSource : public std::enable_shared_from_this<TokenSource> {
 public:
  // Fails as FindTokens.
  static absl::StatusOr<std::shared_ptr<TokenSource>> Open(TokenPlaces places);
  // These tokens, for ever. With none, as with --insecure.
  static std::shared_ptr<TokenSource> Of(std::vector<std::string> tokens);

  bool insecure() const { return places_.insecure; }
  std::vector<std::string> tokens() const;
  // Returns the keys of all tokens now; null if there is none.
  std::shared_ptr<const PeerKeys> Keys(ServerRole role) const;

  // Reads all places again, and blocks meanwhile. Returns whether there are other tokens now. Where they cannot be
  // read, those that were read last stay, and the log says so (token_unreadable).
  bool Reload();
  // Does so soon, on another thread, unless it is being done already. A server calls it every few seconds.
  void ReloadSoon();

  // Adds to `refused`, a BAD_TOKEN, where tokens were looked for last.
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
  std::string told_ ABSL_GUARDED_BY(mutex_);  // the error that the log says
};

}  // namespace cairn

#endif  // CAIRN_COMMON_RPC_TOKEN_SOURCE_H_

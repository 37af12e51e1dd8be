// Decides which token a caller of a coordinator sends: the one that it was given, or one that it finds.
#ifndef CAIRN_COMMON_RPC_TOKEN_SOURCE_H_
#define CAIRN_COMMON_RPC_TOKEN_SOURCE_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/mutex.h"
#include "common/file/posix.h"
#include "common/rpc/token_directory.h"

namespace cairn {

// A coordinator keeps the token that it has made here, below its root.
inline constexpr char kRootTokenPath[] = ".cairn/token";

// Returns the token of the root, and makes it at the first call. Only the holder of the root's lock may call it.
// UNAUTHENTICATED (BAD_TOKEN): others can read it (the file system may keep no modes). Else the errors of storage.
absl::StatusOr<std::string> MakeRootToken(PosixStorage& storage);

struct TokenPlaces {
  bool insecure = false;  // --insecure: no token is sent
  std::string file;       // --token-file; without it the token is looked for
  std::string address;    // first by the coordinator's address in this user's runtime directory,
  std::string root;       // then below this root, if there is one
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

// Holds the token of a process that calls one coordinator for long. Another coordinator with another token may come to
// the address, so after a refusal all places are read again. Thread-safe.
class TokenSource {
 public:
  // Fails as FindTokens.
  static absl::StatusOr<std::shared_ptr<TokenSource>> Open(TokenPlaces places);

  // Returns what to send now; empty for none.
  std::string Current() const;
  // Must be called when the coordinator has answered `token` with BAD_TOKEN. It takes the next one of the tokens that
  // can be found now, and returns `refused` with the places where they were looked for.
  absl::Status Refused(const std::string& token, const absl::Status& refused);

 private:
  TokenSource(TokenPlaces places, std::string current) : places_(std::move(places)), current_(std::move(current)) {}

  const TokenPlaces places_;
  mutable Mutex mutex_;
  std::string current_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cairn

#endif  // CAIRN_COMMON_RPC_TOKEN_SOURCE_H_

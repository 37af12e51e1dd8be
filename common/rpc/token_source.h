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

// Where a coordinator keeps the token that it has made, below its root.
inline constexpr char kRootTokenPath[] = ".cairn/token";

// The token of the root, made at the first call; for the holder of the root's lock. The errors of storage, and
// UNAUTHENTICATED (BAD_TOKEN): others can read it (the file system may keep no modes).
absl::StatusOr<std::string> MakeRootToken(PosixStorage& storage);

struct TokenPlaces {
  bool insecure = false;  // --insecure: none is sent
  std::string file;       // --token-file; if it is empty, the token is looked for:
  std::string address;    // by the coordinator's address in this user's runtime directory,
  std::string root;       // then below this root, if there is one
};

// Tokens to try, best first; empty if none was found.
struct TokenCandidates {
  std::vector<std::string> tokens;
  std::string searched;  // for people: where there was none, and why; empty with a file or --insecure
};
// UNAUTHENTICATED (BAD_TOKEN): the file that was named is of no use.
absl::StatusOr<TokenCandidates> FindTokens(const TokenPlaces& places,
                                           const TokenDirectory& directory = TokenDirectory::OfThisUser());

// Adds to `refused`, which is a BAD_TOKEN, where a token was looked for.
absl::Status ExplainRefusal(const absl::Status& refused, const TokenCandidates& candidates);

// The token of a process that calls one coordinator for long. Another coordinator may come to the address with another
// token: after a refusal all places are read again. Thread-safe.
class TokenSource {
 public:
  // The errors of FindTokens.
  static absl::StatusOr<std::shared_ptr<TokenSource>> Open(TokenPlaces places);

  // What to send now; empty for none.
  std::string Current() const;
  // The coordinator answered BAD_TOKEN to `token`. Takes the next one of those that can be found now. Answers
  // `refused`, and adds to it where they were looked for.
  absl::Status Refused(const std::string& token, const absl::Status& refused);

 private:
  TokenSource(TokenPlaces places, std::string current) : places_(std::move(places)), current_(std::move(current)) {}

  const TokenPlaces places_;
  mutable Mutex mutex_;
  std::string current_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cairn

#endif  // CAIRN_COMMON_RPC_TOKEN_SOURCE_H_

// Copies of the tokens of this user's coordinators, by address: where agents and commands of the same user on the same
// machine find the token of a coordinator of which they know nothing else.
#ifndef CAIRN_COMMON_RPC_TOKEN_DIRECTORY_H_
#define CAIRN_COMMON_RPC_TOKEN_DIRECTORY_H_

#include <sys/types.h>

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/file/unique_fd.h"

namespace cairn {

// "<base>/cairn-<uid>/tokens/<address>", mode 0600 in a directory of mode 0700. A directory or file that is a link,
// belongs to somebody else or may be written (a file: read) by others is never used. Thread-safe, also between
// processes: a file is replaced as a whole.
class TokenDirectory {
 public:
  // `bases`: readers look in all, in this order; a writer takes the first that lets it. `uid`: whose directories.
  TokenDirectory(std::vector<std::string> bases, uid_t uid) : bases_(std::move(bases)), uid_(uid) {}
  // Of this process's user: XDG_RUNTIME_DIR, /run/user/<uid>, /tmp.
  static TokenDirectory OfThisUser();

  struct Found {
    std::vector<std::string> tokens;   // best first, each once
    std::vector<std::string> absent;   // paths where nothing was
    std::vector<std::string> refused;  // "<path> <why>": what must not be used
  };
  Found Find(std::string_view address) const;

  // Writes the copy, in place of another one. `owner` shows later whose it is. On the way copies are removed
  // whose coordinators were killed: those that nobody has renewed for a day, or for ten minutes while nobody listens at
  // their address. (One that serves renews its copy each minute, so that of a container with another loopback stays.)
  // UNAUTHENTICATED (BAD_TOKEN): no base has a place for it.
  absl::Status Put(std::string_view address, std::string_view token, std::string_view owner) const;
  // Removes the copies that are still `owner`'s.
  void Remove(std::string_view address, std::string_view owner) const;

 private:
  // The open directory below `base`; with `make` made if it is missing. The message of an error says why it is not
  // used; NOT_FOUND: it is not there.
  absl::StatusOr<UniqueFd> Open(const std::string& base, bool make) const;
  absl::StatusOr<std::vector<std::string>> ReadLines(int directory, const std::string& name) const;
  std::string PathOf(const std::string& base) const;

  std::vector<std::string> bases_;
  uid_t uid_;
};

// The copy of a coordinator's token while it serves. Not thread-safe.
class TokenCopy {
 public:
  TokenCopy(TokenDirectory directory, std::string address, std::string token);
  // Removes it, if no other coordinator has put its own there.
  ~TokenCopy();
  TokenCopy(const TokenCopy&) = delete;
  TokenCopy& operator=(const TokenCopy&) = delete;

  // Writes it, again if somebody has tidied it away. The errors of TokenDirectory::Put.
  absl::Status Renew();

 private:
  const TokenDirectory directory_;
  const std::string address_;
  const std::string token_;
  const std::string owner_;
};

}  // namespace cairn

#endif  // CAIRN_COMMON_RPC_TOKEN_DIRECTORY_H_

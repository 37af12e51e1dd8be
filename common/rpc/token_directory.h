// Keeps copies of the tokens of this user's coordinators, by address. Here agents and commands of the same user on the
// same machine find the token of a coordinator of which they only know the address.
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
  // Readers look in all `bases`, in this order; a writer takes the first one that it can use. `uid` is the user whose
  // directories these are.
  TokenDirectory(std::vector<std::string> bases, uid_t uid) : bases_(std::move(bases)), uid_(uid) {}
  // The directory of this process's user, with the bases XDG_RUNTIME_DIR, /run/user/<uid> and /tmp.
  static TokenDirectory OfThisUser();

  struct Found {
    std::vector<std::string> tokens;   // best first, each once
    std::vector<std::string> absent;   // paths where nothing was
    std::vector<std::string> refused;  // "<path> <why>": what must not be used
  };
  Found Find(std::string_view address) const;

  // Writes the copy, in place of another one. `owner` shows later whose it is. On the way it removes copies whose
  // coordinators were killed: those that nobody has renewed for a day, or for ten minutes while nobody listens at their
  // address. (A coordinator that serves renews its copy each minute. So the copy of one in a container with another
  // loopback stays.) UNAUTHENTICATED (BAD_TOKEN): no base has a place for it.
  absl::Status Put(std::string_view address, std::string_view token, std::string_view owner) const;
  // Removes the copies that are still `owner`'s.
  void Remove(std::string_view address, std::string_view owner) const;

 private:
  // Opens the directory below `base`, and makes it first if it is missing and `make` is set. The message of an error
  // says why it is not used; NOT_FOUND: it is not there.
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

// Keeps copies of the tokens of this user's coordinators, by address. An agent or command of the same user on the same
// machine finds a coordinator's token here by its address.
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

// A copy is the file "<base>/cairn-<uid>/tokens/<address>", with mode 0600 in a directory of mode 0700. A directory or
// file is not used if it is a link, belongs to another user, or can be written by others; a file also not if others can
// read it. Safe between threads and between processes, because files are replaced atomically.
class TokenDirectory {
 public:
  // Readers look in all `bases`, in this order. A writer uses the first usable one. They must belong to the user `uid`.
  TokenDirectory(std::vector<std::string> bases, uid_t uid) : bases_(std::move(bases)), uid_(uid) {}
  // Returns the directory of this process's user, with the bases XDG_RUNTIME_DIR, /run/user/<uid> and /tmp.
  static TokenDirectory OfThisUser();

  struct Found {
    std::vector<std::string> tokens;   // best first, each once
    std::vector<std::string> absent;   // paths where no file exists
    std::vector<std::string> refused;  // "<path> <why>": files that exist and are not used
  };
  Found Find(std::string_view address) const;

  // Writes the copy for `address`; replaces an existing one. `owner` is stored with it, for Remove. Also removes copies
  // that killed coordinators have left: those not renewed for a day, or for ten minutes if nothing listens at their
  // address. (A running coordinator renews its copy each minute. So a coordinator in a container with another loopback
  // keeps its copy.) UNAUTHENTICATED (BAD_TOKEN): the copy can be written in no base.
  absl::Status Put(std::string_view address, std::string_view token, std::string_view owner) const;
  // Removes the copies for `address` that have this `owner`.
  void Remove(std::string_view address, std::string_view owner) const;

 private:
  // Opens the directory below `base`; if `make` is true, it first makes the directory if it is missing. The message of
  // an error says why the directory is not used. NOT_FOUND: it does not exist.
  absl::StatusOr<UniqueFd> Open(const std::string& base, bool make) const;
  absl::StatusOr<std::vector<std::string>> ReadLines(int directory, const std::string& name) const;
  std::string PathOf(const std::string& base) const;

  std::vector<std::string> bases_;
  uid_t uid_;
};

// Keeps the copy of a coordinator's token while the coordinator serves. Not thread-safe.
class TokenCopy {
 public:
  TokenCopy(TokenDirectory directory, std::string address);
  // Removes the copy, unless another coordinator has put its own there.
  ~TokenCopy();
  TokenCopy(const TokenCopy&) = delete;
  TokenCopy& operator=(const TokenCopy&) = delete;

  // Writes the copy, also if it was deleted or holds another token. Fails as TokenDirectory::Put.
  absl::Status Renew(std::string_view token);

 private:
  const TokenDirectory directory_;
  const std::string address_;
  const std::string owner_;
};

}  // namespace cairn

#endif  // CAIRN_COMMON_RPC_TOKEN_DIRECTORY_H_

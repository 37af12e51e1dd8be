#include "agent/sockets/peer.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/file/errno_error.h"
#include "common/status/reason.h"

namespace cairn {
namespace {

constexpr int kPeerPidfd = 77;  // SO_PEERPIDFD, which older headers do not name

}  // namespace

absl::StatusOr<Peer> PeerOf(int fd) {
  ucred credentials = {};
  socklen_t size = sizeof(credentials);
  if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &size) != 0)
    return ErrnoError(errno, "peer of", "a socket");
  return Peer{credentials.pid, credentials.uid};
}

PeerEnd EndOf(int fd, const Peer& peer) {
  int process = -1;
  socklen_t size = sizeof(process);
  if (getsockopt(fd, SOL_SOCKET, kPeerPidfd, &process, &size) != 0) {
    process = peer.pid > 0 ? static_cast<int>(syscall(SYS_pidfd_open, peer.pid, 0)) : -1;
  }
  if (process >= 0) {
    fcntl(process, F_SETFD, FD_CLOEXEC);
    return {std::make_shared<const UniqueFd>(process), nullptr};
  }
  const int connection = fcntl(fd, F_DUPFD_CLOEXEC, 0);
  if (connection < 0) return {};
  return {nullptr, std::make_shared<const UniqueFd>(connection)};
}

UserPolicy::UserPolicy(std::vector<uid_t> allowed) : allowed_(std::move(allowed)) {
  if (std::find(allowed_.begin(), allowed_.end(), geteuid()) == allowed_.end()) allowed_.push_back(geteuid());
}

absl::Status UserPolicy::Check(const Peer& peer) const {
  if (std::find(allowed_.begin(), allowed_.end(), peer.uid) != allowed_.end()) return absl::OkStatus();
  return MakeError(Reason::kPeerUid,
                   absl::StrCat("a process of user ", peer.uid, " connected; this agent serves user ", geteuid(),
                                " (others by --allow-uid)"),
                   {{"uid", absl::StrCat(peer.uid)}, {"pid", absl::StrCat(peer.pid)}});
}

}  // namespace cairn

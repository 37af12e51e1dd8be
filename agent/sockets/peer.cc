#include "agent/sockets/peer.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/file/errno_error.h"
#include "common/status/reason.h"

namespace cairn {

absl::StatusOr<Peer> PeerOf(int fd) {
  ucred credentials = {};
  socklen_t size = sizeof(credentials);
  if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &size) != 0)
    return ErrnoError(errno, "peer of", "a socket");
  return Peer{credentials.pid, credentials.uid};
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

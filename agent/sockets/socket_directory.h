// Makes and checks the directory of the agent's Unix sockets. It must belong to this user and be closed to others.
#ifndef CAIRN_AGENT_SOCKETS_SOCKET_DIRECTORY_H_
#define CAIRN_AGENT_SOCKETS_SOCKET_DIRECTORY_H_

#include <string>

#include "absl/status/statusor.h"
#include "common/file/unique_fd.h"

namespace cairn {

// Returns "<XDG_RUNTIME_DIR or /tmp>/cairn-<uid>/<job>-<rank>", with '_' for each '/' of the job's name. If a socket's
// path would be longer than 108 bytes, a hash shortens it.
std::string DefaultSocketDirectory(const std::string& job, uint32_t rank);

// Makes the directory, and its parent if missing, with mode 0700 (0711 if `others_may_enter`). (Then only the sockets'
// check of the peer's user protects the agent.) An existing directory is accepted only if it is no link, belongs to
// this user, and is not writable by others. FAILED_PRECONDITION (SOCKET_DIRECTORY): the directory cannot be made or is
// not accepted.
absl::Status PrepareSocketDirectory(const std::string& path, bool others_may_enter);

// Makes a listening socket at `path` with mode 0600 (0666 if others may enter). Replaces an existing socket on which no
// process listens. FAILED_PRECONDITION (SOCKET_DIRECTORY): another agent listens there, or the socket cannot be made.
absl::StatusOr<UniqueFd> ListenOnUnixSocket(const std::string& path, bool others_may_enter);

}  // namespace cairn

#endif  // CAIRN_AGENT_SOCKETS_SOCKET_DIRECTORY_H_

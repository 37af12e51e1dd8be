// Makes and checks the directory of the agent's Unix sockets, which must be ours and closed to others.
#ifndef CAIRN_AGENT_SOCKETS_SOCKET_DIRECTORY_H_
#define CAIRN_AGENT_SOCKETS_SOCKET_DIRECTORY_H_

#include <string>

#include "absl/status/statusor.h"
#include "common/file/unique_fd.h"

namespace cairn {

// "<XDG_RUNTIME_DIR or /tmp>/cairn-<uid>/<job>-<rank>", '/' of the job's name written as '_'. Shortened by a hash where
// a socket's path (108 bytes) would not hold it.
std::string DefaultSocketDirectory(const std::string& job, uint32_t rank);

// Makes the directory, and its parent if that is missing too, with mode 0700, or `mode` if others must reach it (then
// the sockets' peer check stands alone). An existing one is taken only if it is a directory, no link, owned by this
// user, and not writable by others. FAILED_PRECONDITION (SOCKET_DIRECTORY): it cannot be made or is not such a
// directory.
absl::Status PrepareSocketDirectory(const std::string& path, bool others_may_enter);

// Makes a listening socket at `path` with mode 0600 (0666 if others may enter). A socket that stood there is removed,
// unless somebody answers there. FAILED_PRECONDITION (SOCKET_DIRECTORY): another agent uses it, or it cannot be made.
absl::StatusOr<UniqueFd> ListenOnUnixSocket(const std::string& path, bool others_may_enter);

}  // namespace cairn

#endif  // CAIRN_AGENT_SOCKETS_SOCKET_DIRECTORY_H_

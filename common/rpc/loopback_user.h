// Says which user of this machine is at the other end of a TCP connection over loopback.
#ifndef CAIRN_COMMON_RPC_LOOPBACK_USER_H_
#define CAIRN_COMMON_RPC_LOOPBACK_USER_H_

#include <sys/types.h>

#include <optional>

#include "common/file/unique_fd.h"

namespace cairn {

// Asks the kernel's table of sockets (sock_diag(7)). One question takes some microseconds. Not thread-safe.
class LoopbackUser {
 public:
  LoopbackUser();
  // Returns the user who made the peer's socket; nothing if the connection is not one of this machine, the peer has
  // closed it, or the system does not answer such questions.
  std::optional<uid_t> At(int connection);

 private:
  const UniqueFd kernel_;
};

}  // namespace cairn

#endif  // CAIRN_COMMON_RPC_LOOPBACK_USER_H_

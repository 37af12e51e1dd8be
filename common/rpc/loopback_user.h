// Finds the user of this machine at the other end of a TCP connection over loopback.
#ifndef CAIRN_COMMON_RPC_LOOPBACK_USER_H_
#define CAIRN_COMMON_RPC_LOOPBACK_USER_H_

#include <sys/types.h>

#include <optional>

#include "common/file/unique_fd.h"

namespace cairn {

// Reads the kernel's table of sockets (sock_diag(7)). One call takes some microseconds. Not thread-safe.
class LoopbackUser {
 public:
  LoopbackUser();
  // Returns the user who made the peer's socket. Returns nothing if the peer is on another machine or has closed the
  // connection, or if the system does not support sock_diag.
  std::optional<uid_t> At(int connection);

 private:
  const UniqueFd kernel_;
};

}  // namespace cairn

#endif  // CAIRN_COMMON_RPC_LOOPBACK_USER_H_

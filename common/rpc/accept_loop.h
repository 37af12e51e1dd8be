// Takes the connections of listening sockets, also when the process has no file descriptor left for them.
//
// gRPC's own listener (1.51, tcp_server_posix.cc) gives its port up for good at the first accept() that fails: whoever
// connects later waits in the system's queue and is never answered, also when descriptors are free again.
#ifndef CAIRN_COMMON_RPC_ACCEPT_LOOP_H_
#define CAIRN_COMMON_RPC_ACCEPT_LOOP_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/file/unique_fd.h"

namespace cairn {

class AcceptLoop {
 public:
  // Keeps one descriptor in reserve from here on. The clock must outlive the loop.
  explicit AcceptLoop(const Clock& clock);

  // Gives every connection of `listeners` to `taken`, without blocking and closed in children, until `wake` can be
  // read. The listeners must not block.
  //
  // When the process, or the system, has no descriptor left, a connection is taken with the one in reserve and closed
  // at once, so its caller hears of it now and tries again, and does not wait for an answer that cannot come. The log
  // says so (no_descriptors), at most once a minute, and after that when one could be taken again (descriptors_free).
  void Run(const std::vector<int>& listeners, int wake, const std::function<void(int listener, UniqueFd)>& taken);

 private:
  // Takes what waits at one listener, but not so much that others, or the end, would wait long. False: the caller
  // should pause.
  bool TakeWaiting(int listener, const std::function<void(int, UniqueFd)>& taken);
  // Closes the connection that waits first. False: it waits on.
  bool Refuse(int listener);
  void LogShortage(int error);
  void LogEnd();

  const Clock& clock_;
  UniqueFd reserve_;
  bool short_ = false;    // the log says so
  uint64_t refused_ = 0;  // since the log said last that it is over
  absl::Time logged_ = absl::InfinitePast();
};

}  // namespace cairn

#endif  // CAIRN_COMMON_RPC_ACCEPT_LOOP_H_

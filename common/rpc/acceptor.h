// Takes the connections of listening sockets, also when the process has no file descriptor left for them.
//
// gRPC's own listener (1.51, tcp_server_posix.cc) gives its port up for good at the first accept() that fails: whoever
// connects later waits in the system's queue and is never answered, also when descriptors are free again.
#ifndef CAIRN_COMMON_RPC_ACCEPTOR_H_
#define CAIRN_COMMON_RPC_ACCEPTOR_H_

#include <cstdint>
#include <functional>

#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/file/unique_fd.h"

namespace cairn {

// Not thread-safe.
class Acceptor {
 public:
  static constexpr int kTakenInTurn = 64;

  // The process keeps one descriptor in reserve from its first acceptor on. The clock must outlive the acceptor.
  explicit Acceptor(const Clock& clock);

  // Gives the connections that wait at `listener`, which must not block, to `taken`: without blocking and closed in
  // children; not more than `most` at once. Returns false if connections wait and none can be taken: then the caller
  // should pause.
  //
  // Connections never take the last descriptors, which are for files (OpenFileShares). A connection beyond is taken and
  // closed at once, so its caller hears of it now and tries again, and does not wait for an answer that cannot come.
  // The log says so (no_descriptors), at most once a minute, and after that when one could be taken again
  // (descriptors_free).
  bool TakeWaiting(int listener, const std::function<void(UniqueFd)>& taken, int most = kTakenInTurn);

 private:
  void LogShortage(int error);
  void LogEnd();

  const Clock& clock_;
  bool short_ = false;    // the log says so
  uint64_t refused_ = 0;  // since the log said last that it is over
  absl::Time logged_ = absl::InfinitePast();
};

}  // namespace cairn

#endif  // CAIRN_COMMON_RPC_ACCEPTOR_H_

// Accepts connections of listening sockets, and keeps working when the process runs out of file descriptors.
//
// gRPC's own listener (1.51, tcp_server_posix.cc) stops for good at the first accept() that fails: later connections
// wait in the system's queue and are never answered, even when descriptors are free again.
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

  // A process's first acceptor reserves one descriptor for the time when none is left. The clock must outlive it.
  explicit Acceptor(const Clock& clock);

  // Accepts at most `most` connections that wait at `listener`, which must not block, and passes them to `taken`. They
  // do not block and have close-on-exec set. Returns false if connections wait and none can be accepted: then the
  // caller should pause.
  //
  // The last descriptors are reserved for files (OpenFileShares). A connection that would need one of them is accepted
  // and closed at once, so that its client learns of it and tries again. The log says so (no_descriptors), at most once
  // a minute, and says when connections are accepted again (descriptors_free).
  bool TakeWaiting(int listener, const std::function<void(UniqueFd)>& taken, int most = kTakenInTurn);

 private:
  void LogShortage(int error);
  void LogEnd();

  const Clock& clock_;
  bool short_ = false;    // no_descriptors was logged, and descriptors_free not yet
  uint64_t refused_ = 0;  // since descriptors_free was logged
  absl::Time logged_ = absl::InfinitePast();
};

}  // namespace cairn

#endif  // CAIRN_COMMON_RPC_ACCEPTOR_H_

// The end of a service: by SIGTERM, by SIGINT, or by an error of its own, and what its process says of it.
#ifndef CAIRN_COMMON_PROCESS_ENDING_H_
#define CAIRN_COMMON_PROCESS_ENDING_H_

#include <csignal>
#include <functional>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/base/mutex.h"
#include "common/file/unique_fd.h"

namespace cairn {

// A process has one, and makes it before it starts threads.
class Ending {
 public:
  // Blocks the two signals: threads that start from here on never get them. A write to a peer that is gone, or beyond a
  // limit on the size of files, fails with an error from now on, and ends no process by a signal.
  Ending();

  // Ends the service by an error. May be called from any thread. The first error counts.
  void OnError(const absl::Status& error);

  // Waits for the end, and calls `meanwhile` after each `pause`. Returns the signal; 0 if it was an error.
  int Await(absl::Duration pause, const std::function<void()>& meanwhile);
  // Waits for the end.
  int Await() {
    return Await(absl::InfiniteDuration(), [] {});
  }
  // Makes the next signal end the process at once.
  void LetSignalsThrough();

  // Returns the first error; OK if there was none until now.
  absl::Status Error();

 private:
  sigset_t signals_;
  UniqueFd signal_fd_;
  UniqueFd error_fd_;  // can be read when there is an error
  Mutex mutex_;
  absl::Status error_ ABSL_GUARDED_BY(mutex_);
};

// The exit status of a process whose work has failed, and of one that was started in a wrong way.
inline constexpr int kExitFailed = 1;
inline constexpr int kExitUsage = 2;

// Returns the exit status of a process that ends so: 0 if `end` is OK. Else it is `failed`, and the error is written to
// standard error by one write(2): "error: REASON: text", with the next action in a line of its own.
int ExitStatusOf(const absl::Status& end, int failed = kExitFailed);

}  // namespace cairn

#endif  // CAIRN_COMMON_PROCESS_ENDING_H_

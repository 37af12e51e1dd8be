// Waits for the end of a service (SIGTERM, SIGINT, or an error of its own), and makes the exit status of the process.
#ifndef CAIRN_COMMON_PROCESS_ENDING_H_
#define CAIRN_COMMON_PROCESS_ENDING_H_

#include <csignal>
#include <functional>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/base/mutex.h"
#include "common/file/unique_fd.h"

namespace cairn {

// A process has one object of this class, and makes it before it starts threads.
class Ending {
 public:
  // Blocks SIGTERM and SIGINT in this thread and in all threads that it starts later. Ignores SIGPIPE and SIGXFSZ, so a
  // write to a closed connection, or beyond a limit on file sizes, returns an error and does not end the process.
  Ending();

  // Makes Await return because of `error`. May be called from any thread. Only the first error counts.
  void OnError(const absl::Status& error);

  // Waits for a signal or an error, and calls `meanwhile` after each `pause`. Returns the signal; 0 for an error.
  int Await(absl::Duration pause, const std::function<void()>& meanwhile);
  // Waits without a pause.
  int Await() {
    return Await(absl::InfiniteDuration(), [] {});
  }
  // Makes the next signal end the process at once.
  void LetSignalsThrough();
  // Waits for a signal or an error, for `most` at longest. Returns whether one has come; Await still finds it.
  bool ComesWithin(absl::Duration most);

  // Returns the first error; OK if there was none so far.
  absl::Status Error();

 private:
  sigset_t signals_;
  UniqueFd signal_fd_;
  UniqueFd error_fd_;  // can be read when there is an error
  Mutex mutex_;
  absl::Status error_ ABSL_GUARDED_BY(mutex_);
};

// Exit statuses: the work has failed; the command line or configuration was wrong.
inline constexpr int kExitFailed = 1;
inline constexpr int kExitUsage = 2;

// Returns the exit status of a process that ends with `end`: 0 if `end` is OK, else `failed`. It writes an error to
// standard error by one write(2): "error: REASON: text", and the next action on a line of its own.
int ExitStatusOf(const absl::Status& end, int failed = kExitFailed);

}  // namespace cairn

#endif  // CAIRN_COMMON_PROCESS_ENDING_H_

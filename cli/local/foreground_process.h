// Runs another program that acts for this one: it gets this process's terminal and signals, and gives its exit status.
#ifndef CAIRN_CLI_LOCAL_FOREGROUND_PROCESS_H_
#define CAIRN_CLI_LOCAL_FOREGROUND_PROCESS_H_

#include <sys/types.h>

#include <csignal>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace cairn::cli {

// Looks for a program as ForegroundProcess::Start does. DATA_LOSS (FILE_MISSING), or FAILED_PRECONDITION
// (STORAGE_READ_ONLY): there is none that this user may execute.
absl::Status FindProgram(const std::string& name);

// Not thread-safe. A process may have only one of these at a time. Until it is destroyed, it blocks and handles SIGINT,
// SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2 and SIGCHLD of this process.
class ForegroundProcess {
 public:
  // Starts a program, which is searched for on PATH. The program has this process's terminal and `variables` in its
  // environment. If this process is killed, the program gets SIGTERM. NOT_FOUND (FILE_MISSING) or another error of
  // common/file/errno_error.h: the program cannot be started.
  static absl::StatusOr<ForegroundProcess> Start(const std::vector<std::string>& command,
                                                 const std::vector<std::pair<std::string, std::string>>& variables);
  ForegroundProcess(ForegroundProcess&& other) noexcept;
  ForegroundProcess& operator=(ForegroundProcess&&) = delete;
  ~ForegroundProcess();

  pid_t pid() const { return pid_; }

  // Waits for a signal, at most for `timeout`, and forwards it to the program. (A signal of the terminal reaches the
  // program by itself and is not forwarded.) When the program has ended, returns its exit status in the form of shells:
  // 128 and the signal's number if a signal ended it.
  std::optional<int> Follow(absl::Duration timeout);
  // Returns whether a signal has asked this process to end, since the program ended.
  bool Interrupted();

 private:
  ForegroundProcess(pid_t pid, const sigset_t& before) : pid_(pid), before_(before) {}

  pid_t pid_ = -1;
  sigset_t before_;
};

}  // namespace cairn::cli

#endif  // CAIRN_CLI_LOCAL_FOREGROUND_PROCESS_H_

// Runs another program in the place of this one, as far as terminal, signals and exit status are concerned.
#ifndef CAIRN_CLI_LOCAL_FOREGROUND_PROCESS_H_
#define CAIRN_CLI_LOCAL_FOREGROUND_PROCESS_H_

#include <sys/types.h>

#include <csignal>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace cairn::cli {

// Not thread-safe. One at a time: it takes SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2 and SIGCHLD of this
// process, until it is destroyed.
class ForegroundProcess {
 public:
  // Looks for the program on PATH. It has this process's terminal, and `variables` in its environment. It gets SIGTERM
  // if this process is killed. NOT_FOUND (FILE_MISSING) or another error of common/file/errno_error.h: it cannot be
  // started.
  static absl::StatusOr<ForegroundProcess> Start(const std::vector<std::string>& command,
                                                 const std::vector<std::pair<std::string, std::string>>& variables);
  ForegroundProcess(ForegroundProcess&& other) noexcept;
  ForegroundProcess& operator=(ForegroundProcess&&) = delete;
  ~ForegroundProcess();

  // Waits for a signal, at most for `timeout`, and hands it on. (Those that the terminal has sent went to the program
  // as well, and are not handed on.) Returns the program's exit status, as shells have it, when it has ended.
  std::optional<int> Follow(absl::Duration timeout);
  // Returns whether somebody has asked this process to end, since the program ended.
  bool Interrupted();

 private:
  ForegroundProcess(pid_t pid, const sigset_t& before) : pid_(pid), before_(before) {}

  pid_t pid_ = -1;
  sigset_t before_;
};

}  // namespace cairn::cli

#endif  // CAIRN_CLI_LOCAL_FOREGROUND_PROCESS_H_

// Runs a service for as long as a command itself runs.
#ifndef CAIRN_CLI_LOCAL_CHILD_PROCESS_H_
#define CAIRN_CLI_LOCAL_CHILD_PROCESS_H_

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/status/reason.h"

namespace cairn::cli {

// Not thread-safe. The destructor kills the process, and the kernel does so if the command itself is killed.
class ChildProcess {
 public:
  // `arguments[0]` is the program's path. The program's output is added to the file `log`. Its environment is that of
  // this process with `environment`, "NAME=VALUE" each, in place of what has the same names. UNAVAILABLE
  // (STORAGE_ERROR): it cannot be started.
  static absl::StatusOr<ChildProcess> Start(const std::vector<std::string>& arguments, const std::string& log,
                                            const std::vector<std::string>& environment = {});
  ~ChildProcess();
  ChildProcess(ChildProcess&& other) noexcept;
  ChildProcess& operator=(ChildProcess&&) = delete;

  pid_t pid() const { return pid_; }
  const std::string& log() const { return log_; }

  // Returns how the process ended ("exit status 2", "signal 9"), if it has ended. Never waits.
  std::optional<std::string> Ended();
  void Signal(int signal);
  // Waits for the end, at most `timeout`. Returns false if the process still runs.
  bool Wait(absl::Duration timeout);

 private:
  ChildProcess(pid_t pid, std::string log) : pid_(pid), log_(std::move(log)) {}

  pid_t pid_ = -1;
  std::string log_;
  std::optional<std::string> end_;
};

// Names a child for people, and has the reason of its end if the child itself gave none.
struct ChildName {
  std::string text;  // "the agent of rank 2"
  Reason reason = Reason::kAgentUnreachable;
};

// Returns the error of a child that has ended: its own, which is the last "error: REASON: text" of its log; else
// `name.reason` with the last lines of the log. The message says who ended and how, the metadata's "log" says where the
// log is.
absl::Status ErrorOf(const ChildProcess& child, const ChildName& name, const std::string& end);

// Waits for a file that `child` writes when it is ready, and returns its content. ErrorOf: the child ended before.
// `name.reason`: it did not write the file within `timeout`; the message has the last lines of its log. CANCELLED
// (INTERRUPTED).
absl::StatusOr<std::string> AwaitAddress(ChildProcess& child, const std::string& path, const ChildName& name,
                                         absl::Duration timeout);

}  // namespace cairn::cli

#endif  // CAIRN_CLI_LOCAL_CHILD_PROCESS_H_

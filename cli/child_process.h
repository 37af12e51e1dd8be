// A service that a command runs for as long as it lives itself.
#ifndef CAIRN_CLI_CHILD_PROCESS_H_
#define CAIRN_CLI_CHILD_PROCESS_H_

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/status/reason.h"

namespace cairn::cli {

// Not thread-safe. The process is killed when this object goes, and by the kernel if the command itself is killed.
class ChildProcess {
 public:
  // `arguments[0]` is the program's path; its output goes to the file `log`, which is replaced.
  // UNAVAILABLE (STORAGE_ERROR): it cannot be started.
  static absl::StatusOr<ChildProcess> Start(const std::vector<std::string>& arguments, const std::string& log);
  ~ChildProcess();
  ChildProcess(ChildProcess&& other) noexcept;
  ChildProcess& operator=(ChildProcess&&) = delete;

  pid_t pid() const { return pid_; }
  const std::string& log() const { return log_; }

  // How it ended ("exit status 2", "signal 9"), if it has. Never waits.
  std::optional<std::string> Ended();
  void Signal(int signal);
  // Waits for the end, at most `timeout`; false if it still runs.
  bool Wait(absl::Duration timeout);

 private:
  ChildProcess(pid_t pid, std::string log) : pid_(pid), log_(std::move(log)) {}

  pid_t pid_ = -1;
  std::string log_;
  std::optional<std::string> end_;
};

// Who a child is, for people, and the reason of its end if it gave none itself.
struct ChildName {
  std::string text;  // "the agent of rank 2"
  Reason reason = Reason::kAgentUnreachable;
};

// The error of a child that has ended: its own, which is the last "error: REASON: text" of its log, else `name.reason`
// with the last lines of the log. The message says who ended how, the metadata's "log" where the log is.
absl::Status ErrorOf(const ChildProcess& child, const ChildName& name, const std::string& end);

// The content of a file that `child` writes when it is ready. ErrorOf: it ended before. `name.reason`: it did not write
// it within `timeout`; the message has the last lines of its log. CANCELLED (INTERRUPTED).
absl::StatusOr<std::string> AwaitAddress(ChildProcess& child, const std::string& path, const ChildName& name,
                                         absl::Duration timeout);

}  // namespace cairn::cli

#endif  // CAIRN_CLI_CHILD_PROCESS_H_

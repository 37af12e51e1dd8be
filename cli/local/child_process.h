// Runs a service as a child process, no longer than this process runs.
#ifndef CAIRN_CLI_LOCAL_CHILD_PROCESS_H_
#define CAIRN_CLI_LOCAL_CHILD_PROCESS_H_

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/status/reason.h"

namespace cairn::cli {

// Not thread-safe. The destructor kills the child. If this process is killed, the kernel kills the child.
class ChildProcess {
 public:
  // `arguments[0]` is the program's path. The program's output is appended to the file `log`; if that is empty, it goes
  // to this process's standard error. Its environment is that of this process, where entries of `environment`
  // ("NAME=VALUE") replace variables of the same names. UNAVAILABLE (STORAGE_ERROR): the program cannot be started.
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

// Waits for children that have ended and are none that `is_own` knows: as the first process of a container this one
// gets the children of those that were killed, and they would stay as zombies. Never blocks. Does nothing while one of
// its own has ended and has not been asked for (Ended).
void ReapOrphans(absl::FunctionRef<bool(pid_t)> is_own);

// Describes a child for errors.
struct ChildName {
  std::string text;  // for people: "the agent of rank 2"
  Reason reason = Reason::kAgentUnreachable;
};

// Returns the error of a child that has ended: the last "error: REASON: text" in its log. If the log has none, the
// error has `name.reason` and the last lines of the log. The message says which child ended and how (`end`). The
// metadata "log" is the path of the log. A child without a log has printed why it ended, and the next action says so.
absl::Status ErrorOf(const ChildProcess& child, const ChildName& name, const std::string& end);

// Waits for the file `path`, which `child` writes when it is ready, and returns the file's contents. If the child ends
// first, returns ErrorOf. `name.reason`: the child did not write the file within `timeout`; the message has the last
// lines of its log. CANCELLED (INTERRUPTED): InterruptFlag was set.
absl::StatusOr<std::string> AwaitAddress(ChildProcess& child, const std::string& path, const ChildName& name,
                                         absl::Duration timeout);

}  // namespace cairn::cli

#endif  // CAIRN_CLI_LOCAL_CHILD_PROCESS_H_

// A process that a benchmark starts and measures from outside.
#ifndef CAIRN_BENCHMARKS_CONTROL_PLANE_CHILD_PROCESS_H_
#define CAIRN_BENCHMARKS_CONTROL_PLANE_CHILD_PROCESS_H_

#include <sys/types.h>

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/file/unique_fd.h"

namespace cairn {

// Killed at the end, if it still runs; it also ends if this process does. Not thread-safe.
class ChildProcess {
 public:
  // Makes an object without a process.
  ChildProcess() = default;
  // Its standard error goes to the end of the file `log`; it inherits this process's if `log` is empty.
  // NOT_FOUND (FILE_MISSING): there is no such program.
  static absl::StatusOr<ChildProcess> Start(const std::vector<std::string>& command, const std::string& log);
  ~ChildProcess();
  ChildProcess(ChildProcess&& other) noexcept;
  ChildProcess& operator=(ChildProcess&& other) noexcept;

  // Returns the next line of its standard output. UNAVAILABLE (INTERNAL): it ended, or wrote none before `timeout`.
  absl::StatusOr<std::string> ReadLine(absl::Duration timeout);
  void CloseInput() { input_ = UniqueFd(); }
  // SIGKILL, and waits for the end.
  void Kill();

  // Since its start, of all its threads: user and system time.
  absl::Duration CpuTime() const;
  // Return the resident memory now and at its largest, in bytes.
  uint64_t Resident() const { return Status("VmRSS:"); }
  uint64_t PeakResident() const { return Status("VmHWM:"); }

 private:
  uint64_t Status(const std::string& field) const;

  pid_t pid_ = -1;
  UniqueFd input_;
  UniqueFd output_;
  std::string read_;  // from its output, and not yet handed out
};

}  // namespace cairn

#endif  // CAIRN_BENCHMARKS_CONTROL_PLANE_CHILD_PROCESS_H_

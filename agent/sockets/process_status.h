// Reads from procfs whether another process runs, is stopped, or has ended.
#ifndef CAIRN_AGENT_SOCKETS_PROCESS_STATUS_H_
#define CAIRN_AGENT_SOCKETS_PROCESS_STATUS_H_

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>

#include "cairn/v1/checkpoint_service.pb.h"
#include "common/file/unique_fd.h"

namespace cairn {

// The contents of /proc/PID/status at one time. They describe the process's first thread.
struct ProcessLook {
  char state = 0;  // 'R', 'S', 'D', 'T', 't', 'Z' or 'X'; see proc(5)
  // How often the kernel has switched from this thread to another one.
  uint64_t switches = 0;
};

// Parses the text of /proc/PID/status. Returns nothing if it has no state.
std::optional<ProcessLook> ParseProcessStatus(std::string_view text);

// Returns the state of a process from the latest look and the one before. Reading files causes short uninterruptible
// waits. So the result is UNINTERRUPTIBLE only if it was so in both looks and did not run between them.
v1::JobRank::TrainerProcess StandingOf(const ProcessLook& now, const std::optional<ProcessLook>& before);

// Not thread-safe.
class ProcessStatus {
 public:
  // `process` is a pidfd of the process. It protects against a later process that has got the same number. Returns null
  // if this process cannot see the other one: it is in another container, or procfs hides processes of other users.
  static std::unique_ptr<ProcessStatus> Open(pid_t pid, const UniqueFd& process);

  // Reads the state again. Two calls should be a second apart.
  v1::JobRank::TrainerProcess Look();

 private:
  explicit ProcessStatus(UniqueFd status) : status_(std::move(status)) {}

  // An open /proc/PID/status. It stays that of the same process, even if another process gets the number.
  const UniqueFd status_;
  std::optional<ProcessLook> before_;
};

}  // namespace cairn

#endif  // CAIRN_AGENT_SOCKETS_PROCESS_STATUS_H_

// Says how another process stands, as procfs shows it: whether it runs, or nothing can be expected of it.
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

// What one look at /proc/PID/status says of the process's first thread.
struct ProcessLook {
  char state = 0;  // 'R', 'S', 'D', 'T', 't', 'Z' or 'X'; see proc(5)
  // How often the kernel has switched from it to another thread.
  uint64_t switches = 0;
};

// Reads the text of /proc/PID/status; nothing if it lacks the state.
std::optional<ProcessLook> ParseProcessStatus(std::string_view text);

// Returns how a process stands that was seen so, and so at the look before. Every process that reads a file waits
// uninterruptibly now and then, so it counts only if it has not moved between two looks.
v1::JobRank::TrainerProcess StandingOf(const ProcessLook& now, const std::optional<ProcessLook>& before);

// Not thread-safe.
class ProcessStatus {
 public:
  // `process` is a pidfd of the process, by which a process that has got its number is not taken for it. Null if the
  // process cannot be seen: it is in a container whose processes this one does not see, or its user hides it.
  static std::unique_ptr<ProcessStatus> Open(pid_t pid, const UniqueFd& process);

  // Looks again. Two looks should be a second apart.
  v1::JobRank::TrainerProcess Look();

 private:
  explicit ProcessStatus(UniqueFd status) : status_(std::move(status)) {}

  // It stays that of the process that it was opened for, also when another one has the number.
  const UniqueFd status_;
  std::optional<ProcessLook> before_;
};

}  // namespace cairn

#endif  // CAIRN_AGENT_SOCKETS_PROCESS_STATUS_H_

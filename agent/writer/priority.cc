#include "agent/writer/priority.h"

#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace cairn {
namespace {

constexpr int kNice = 10;
// As linux/ioprio.h has them, which older systems lack: one thread; the last of the eight levels of best effort.
constexpr int kIoPriorityOfThread = 1;
constexpr int kLastBestEffort = (2 << 13) | 7;

}  // namespace

void GiveWay() {
  // For Linux a thread's id is that of a process here: only this thread changes. One with a lower priority keeps it.
  const auto thread = static_cast<id_t>(syscall(SYS_gettid));
  if (getpriority(PRIO_PROCESS, thread) < kNice) (void)setpriority(PRIO_PROCESS, thread, kNice);
  (void)syscall(SYS_ioprio_set, kIoPriorityOfThread, 0, kLastBestEffort);
}

}  // namespace cairn

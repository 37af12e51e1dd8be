// Checks whether this process may allocate more memory: by its budget, its control groups, and the machine's memory.
#ifndef CAIRN_AGENT_STAGING_MEMORY_LIMIT_H_
#define CAIRN_AGENT_STAGING_MEMORY_LIMIT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace cairn {

struct MemoryLimit {
  // For messages: "memory.max of /sys/fs/cgroup/job".
  std::string source;
  uint64_t limit = 0;
  // The memory in use that the kernel cannot reclaim. Page cache of files does not count.
  uint64_t used = 0;
};

// Returns the current limits: those of every control group above this process, and the machine's MemAvailable. `root`
// is the prefix of all paths. Linux describes the files in Documentation/admin-guide/cgroup-v1/memory.rst and
// cgroup-v2.rst.
std::vector<MemoryLimit> ReadMemoryLimits(const std::string& root = "");

// RESOURCE_EXHAUSTED (MEMORY_LIMIT): `bytes` more bytes exceed `budget` (0: no budget) together with the `held` bytes,
// or exceed one of `limits`; the message has the numbers.
absl::Status CheckMemory(uint64_t bytes, uint64_t held, uint64_t budget, const std::vector<MemoryLimit>& limits);

}  // namespace cairn

#endif  // CAIRN_AGENT_STAGING_MEMORY_LIMIT_H_

// Computes what this process may still allocate, from its own budget, the limits of its control groups and the
// machine's memory.
#ifndef CAIRN_AGENT_STAGING_MEMORY_LIMIT_H_
#define CAIRN_AGENT_STAGING_MEMORY_LIMIT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace cairn {

struct MemoryLimit {
  // "memory.max of /sys/fs/cgroup/job"
  std::string source;
  uint64_t limit = 0;
  // So much of the limit is taken and cannot be given back (page cache of files can).
  uint64_t used = 0;
};

// Returns the limits that hold now: those of every control group above this process (for version 1 see
// Documentation/admin-guide/cgroup-v1/memory.rst, for version 2 cgroup-v2.rst), and the machine's MemAvailable. `root`
// is put before all paths.
std::vector<MemoryLimit> ReadMemoryLimits(const std::string& root = "");

// RESOURCE_EXHAUSTED (MEMORY_LIMIT): `bytes` more do not fit `budget` (0: none) besides the `held` bytes that count
// against it, or one of `limits`; the message has the numbers.
absl::Status CheckMemory(uint64_t bytes, uint64_t held, uint64_t budget, const std::vector<MemoryLimit>& limits);

}  // namespace cairn

#endif  // CAIRN_AGENT_STAGING_MEMORY_LIMIT_H_

// Counts the bytes of one load by where they come from.
#ifndef CAIRN_AGENT_READER_LOAD_COUNTERS_H_
#define CAIRN_AGENT_READER_LOAD_COUNTERS_H_

#include <atomic>
#include <cstdint>

#include "cairn/v1/plan.pb.h"
#include "store/storage/stored_file.h"

namespace cairn {

struct LoadCounters : ReadCounters {
  std::atomic<uint64_t> slab = 0;  // bytes from this agent's slab, which were not read from storage

  // Returns the way in which most bytes were read from storage. If none were read from storage: the slab, or
  // unspecified if there were no bytes at all.
  v1::IoPath io_path() const;
};

}  // namespace cairn

#endif  // CAIRN_AGENT_READER_LOAD_COUNTERS_H_

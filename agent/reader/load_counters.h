// Counts where the bytes of one load come from.
#ifndef CAIRN_AGENT_READER_LOAD_COUNTERS_H_
#define CAIRN_AGENT_READER_LOAD_COUNTERS_H_

#include <atomic>
#include <cstdint>

#include "cairn/v1/plan.pb.h"
#include "store/storage/stored_file.h"

namespace cairn {

struct LoadCounters : ReadCounters {
  std::atomic<uint64_t> slab = 0;  // bytes that were not read from storage: this agent still had them in its slab

  // Returns the way that most bytes of storage took. It is the slab if none was read there, and unspecified if nothing
  // was read at all.
  v1::IoPath io_path() const;
};

}  // namespace cairn

#endif  // CAIRN_AGENT_READER_LOAD_COUNTERS_H_

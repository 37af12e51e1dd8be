// Read buffers that outlive a load, so that the next one finds its pages made.
#ifndef CAIRN_AGENT_READER_BUFFER_POOL_H_
#define CAIRN_AGENT_READER_BUFFER_POOL_H_

#include <cstdint>
#include <list>
#include <memory>

#include "absl/status/statusor.h"
#include "agent/staging/shared_memory.h"
#include "common/base/mutex.h"

namespace cairn {

// Thread-safe.
class BufferPool {
 public:
  // `budget`: of all that is out, bytes; 0 for what container and machine allow. `threads` make the pages.
  BufferPool(uint64_t budget, int threads) : budget_(budget), threads_(threads) {}

  // A populated buffer of at least `bytes`. What it holds is undefined.
  // RESOURCE_EXHAUSTED (MEMORY_LIMIT).
  absl::StatusOr<std::shared_ptr<SharedMemory>> Take(uint64_t bytes);
  void GiveBack(std::shared_ptr<SharedMemory> buffer);
  // Frees what is not out.
  void Trim();

 private:
  const uint64_t budget_;
  const int threads_;
  Mutex mutex_;
  std::list<std::shared_ptr<SharedMemory>> free_ ABSL_GUARDED_BY(mutex_);
  uint64_t out_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace cairn

#endif  // CAIRN_AGENT_READER_BUFFER_POOL_H_

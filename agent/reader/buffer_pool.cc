#include "agent/reader/buffer_pool.h"

#include <algorithm>
#include <utility>

#include "agent/staging/memory_limit.h"
#include "common/base/status.h"

namespace cairn {
namespace {

constexpr size_t kKept = 2;  // what one load holds

}  // namespace

absl::StatusOr<std::shared_ptr<SharedMemory>> BufferPool::Take(uint64_t bytes) {
  bytes = std::max<uint64_t>(bytes, 4096);
  uint64_t out = 0;
  {
    MutexLock lock(mutex_);
    for (auto buffer = free_.begin(); buffer != free_.end(); ++buffer) {
      if ((*buffer)->bytes() < bytes) continue;
      std::shared_ptr<SharedMemory> taken = std::move(*buffer);
      free_.erase(buffer);
      out_bytes_ += taken->bytes();
      return taken;
    }
    free_.clear();  // too small: their room is better used
    out = out_bytes_;
  }
  CAIRN_RETURN_IF_ERROR(CheckMemory(bytes, out, budget_, ReadMemoryLimits()));
  CAIRN_ASSIGN_OR_RETURN(auto buffer, SharedMemory::Create("cairn-read", bytes));
  CAIRN_RETURN_IF_ERROR(buffer->Populate(threads_));
  MutexLock lock(mutex_);
  out_bytes_ += buffer->bytes();
  return buffer;
}

void BufferPool::GiveBack(std::shared_ptr<SharedMemory> buffer) {
  if (buffer == nullptr) return;
  MutexLock lock(mutex_);
  out_bytes_ -= std::min(out_bytes_, buffer->bytes());
  free_.push_back(std::move(buffer));
  if (free_.size() > kKept) free_.pop_front();
}

void BufferPool::Trim() {
  MutexLock lock(mutex_);
  free_.clear();
}

}  // namespace cairn

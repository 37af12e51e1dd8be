#include "agent/reader/buffer_pool.h"

#include <algorithm>
#include <utility>

#include "agent/staging/memory_limit.h"
#include "common/status/status.h"

namespace cairn {
namespace {

constexpr uint64_t kPage = 4096;
constexpr size_t kKept = 2;  // what one load holds

}  // namespace

absl::StatusOr<std::shared_ptr<SharedMemory>> BufferPool::MakeCounted(const std::string& name, uint64_t bytes) {
  // Counted before it is made, so that two at a time do not take the same room.
  const uint64_t whole = (bytes + kPage - 1) / kPage * kPage;
  const uint64_t before = held_->fetch_add(whole);
  const auto made = [&]() -> absl::StatusOr<std::shared_ptr<SharedMemory>> {
    CAIRN_RETURN_IF_ERROR(CheckMemory(bytes, before, budget_, ReadMemoryLimits()));
    CAIRN_ASSIGN_OR_RETURN(auto memory, SharedMemory::Create(name, bytes));
    CAIRN_RETURN_IF_ERROR(memory->Populate(threads_));
    return memory;
  }();
  if (!made.ok()) {
    *held_ -= whole;
    return made.status();
  }
  // Frees the memory before it is counted as free.
  SharedMemory* const memory = made->get();
  return std::shared_ptr<SharedMemory>(memory, [owned = *made, held = held_, whole](SharedMemory*) mutable {
    owned.reset();
    *held -= whole;
  });
}

absl::StatusOr<std::shared_ptr<SharedMemory>> BufferPool::Make(const std::string& name, uint64_t bytes) {
  Trim();
  return MakeCounted(name, bytes);
}

absl::StatusOr<std::shared_ptr<SharedMemory>> BufferPool::Take(uint64_t bytes) {
  bytes = std::max<uint64_t>(bytes, kPage);
  {
    MutexLock lock(mutex_);
    for (auto buffer = free_.begin(); buffer != free_.end(); ++buffer) {
      if ((*buffer)->bytes() < bytes) continue;
      std::shared_ptr<SharedMemory> taken = std::move(*buffer);
      free_.erase(buffer);
      return taken;
    }
    free_.clear();  // too small: their room is better used
  }
  return MakeCounted("cairn-read", bytes);
}

void BufferPool::GiveBack(std::shared_ptr<SharedMemory> buffer) {
  if (buffer == nullptr) return;
  MutexLock lock(mutex_);
  free_.push_back(std::move(buffer));
  if (free_.size() > kKept) free_.pop_front();
}

void BufferPool::Trim() {
  MutexLock lock(mutex_);
  free_.clear();
}

}  // namespace cairn

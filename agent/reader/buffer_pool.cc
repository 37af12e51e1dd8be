#include "agent/reader/buffer_pool.h"

#include <algorithm>
#include <utility>

#include "agent/staging/huge_pages.h"
#include "agent/staging/memory_limit.h"
#include "common/process/log.h"
#include "common/resources/page_size.h"
#include "common/status/reason.h"
#include "common/status/status.h"

namespace cairn {
namespace {

constexpr size_t kKept = 2;  // the number of buffers of one load

}  // namespace

class BufferPool::Room {
 public:
  // `bytes` are already counted in `held`.
  Room(uint64_t bytes, std::shared_ptr<std::atomic<uint64_t>> held)
      : bytes_(bytes), left_(bytes), held_(std::move(held)) {}
  ~Room() { *held_ -= bytes_; }
  Room(const Room&) = delete;
  Room& operator=(const Room&) = delete;

  bool Take(uint64_t bytes) {
    uint64_t left = left_;
    while (left >= bytes) {
      if (left_.compare_exchange_weak(left, left - bytes)) return true;
    }
    return false;
  }
  void GiveBack(uint64_t bytes) { left_ += bytes; }

 private:
  const uint64_t bytes_;
  std::atomic<uint64_t> left_;
  const std::shared_ptr<std::atomic<uint64_t>> held_;
};

absl::Status BufferPool::Count(uint64_t bytes, uint64_t beside, SharedMemory::Pages pages) {
  // What is set aside counts for no control group's memory, and the kernel reserves all of it or refuses.
  const std::vector<MemoryLimit> limits =
      pages == SharedMemory::Pages::kSetAside ? std::vector<MemoryLimit>() : ReadMemoryLimits();
  // Counts before the memory is made, so that two calls at a time cannot use the same part of the budget.
  const uint64_t before = held_->fetch_add(bytes);
  const absl::Status fits = CheckMemory(bytes + beside, before, budget_, limits);
  if (!fits.ok()) *held_ -= bytes;
  return fits;
}

absl::StatusOr<std::shared_ptr<SharedMemory>> BufferPool::MakePages(SharedMemory::Pages pages, const std::string& name,
                                                                    uint64_t bytes,
                                                                    std::function<void()> uncount) const {
  const auto made = [&]() -> absl::StatusOr<std::shared_ptr<SharedMemory>> {
    CAIRN_ASSIGN_OR_RETURN(auto memory, SharedMemory::Create(name, bytes, pages));
    CAIRN_RETURN_IF_ERROR(memory->Populate(threads_));
    return memory;
  }();
  if (!made.ok()) {
    uncount();
    return made.status();
  }
  // The deleter frees the memory before it reduces the count.
  SharedMemory* const memory = made->get();
  return std::shared_ptr<SharedMemory>(memory, [owned = *made, uncount = std::move(uncount)](SharedMemory*) mutable {
    owned.reset();
    uncount();
  });
}

absl::StatusOr<std::function<void()>> BufferPool::Hold(SharedMemory::Pages pages, uint64_t bytes,
                                                       const std::shared_ptr<Room>& room) {
  const uint64_t whole = SharedMemory::WholePages(bytes, pages);
  if (room != nullptr && room->Take(whole)) return [room, whole] { room->GiveBack(whole); };
  if (!Count(whole, 0, pages).ok()) {
    Trim();
    CAIRN_RETURN_IF_ERROR(Count(whole, 0, pages));
  }
  return [held = held_, whole] { *held -= whole; };
}

absl::StatusOr<std::shared_ptr<SharedMemory>> BufferPool::MakeCounted(const std::string& name, uint64_t bytes,
                                                                      const std::shared_ptr<Room>& room) {
  if (set_aside_ && bytes >= kHugePageBytes) {
    const auto made = [&]() -> absl::StatusOr<std::shared_ptr<SharedMemory>> {
      CAIRN_ASSIGN_OR_RETURN(auto uncount, Hold(SharedMemory::Pages::kSetAside, bytes, room));
      return MakePages(SharedMemory::Pages::kSetAside, name, bytes, std::move(uncount));
    }();
    if (made.ok()) return made;
    Log(LogLevel::kWarn, "huge_pages_refused",
        {{"bytes", bytes}, {"error", made.status()}, {"next", NextActionOf(made.status())}});
  }
  CAIRN_ASSIGN_OR_RETURN(auto uncount, Hold(SharedMemory::Pages::kOrdinary, bytes, room));
  return MakePages(SharedMemory::Pages::kOrdinary, name, bytes, std::move(uncount));
}

absl::StatusOr<std::shared_ptr<SharedMemory>> BufferPool::Make(const std::string& name, uint64_t bytes,
                                                               const std::shared_ptr<Room>& room) {
  if (room == nullptr) Trim();
  return MakeCounted(name, bytes, room);
}

absl::StatusOr<std::shared_ptr<BufferPool::Room>> BufferPool::Reserve(uint64_t bytes, uint64_t beside) {
  if (!Count(bytes, beside).ok()) {
    Trim();
    CAIRN_RETURN_IF_ERROR(Count(bytes, beside));
  }
  return std::make_shared<Room>(bytes, held_);
}

bool BufferPool::Fits(uint64_t bytes) { return CheckMemory(bytes, held(), budget_, ReadMemoryLimits()).ok(); }

absl::StatusOr<std::shared_ptr<SharedMemory>> BufferPool::Take(uint64_t bytes) {
  bytes = std::max(bytes, PageBytes());
  {
    MutexLock lock(mutex_);
    for (auto buffer = free_.begin(); buffer != free_.end(); ++buffer) {
      if ((*buffer)->bytes() < bytes) continue;
      std::shared_ptr<SharedMemory> taken = std::move(*buffer);
      free_.erase(buffer);
      return taken;
    }
    free_.clear();  // too small, so their memory is freed
  }
  return MakeCounted("cairn-read", bytes, nullptr);
}

void BufferPool::GiveBack(std::shared_ptr<SharedMemory> buffer) {
  if (buffer == nullptr) return;
  MutexLock lock(mutex_);
  free_.push_back(std::move(buffer));
  if (free_.size() > kKept) free_.pop_front();
}

bool BufferPool::has_huge_pages() const { return set_aside_ || ReadHugePages().by_itself; }

void BufferPool::Trim() {
  MutexLock lock(mutex_);
  free_.clear();
}

}  // namespace cairn

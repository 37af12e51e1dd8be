// Allocates the shared memory of an agent within one budget. Keeps read buffers after a load, so that the next load
// need not allocate their pages again.
#ifndef CAIRN_AGENT_READER_BUFFER_POOL_H_
#define CAIRN_AGENT_READER_BUFFER_POOL_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "agent/staging/shared_memory.h"
#include "common/base/mutex.h"

namespace cairn {

// Thread-safe.
class BufferPool {
 public:
  // A part of the budget that is reserved for memory that is made later. It counts as held while the Room, or memory
  // that was made from it, exists. Thread-safe.
  class Room;

  // `budget`: the limit for all held memory, in bytes; 0: only the limits of container and machine count. `threads`:
  // how many threads allocate the pages of new memory. `set_aside`: whether to take huge pages that were set aside;
  // where too few are free, the log says so and memory has ordinary pages.
  BufferPool(uint64_t budget, int threads, bool set_aside = false)
      : budget_(budget), threads_(threads), set_aside_(set_aside), held_(std::make_shared<std::atomic<uint64_t>>(0)) {}

  // Returns populated memory of at least `bytes` that is no read buffer: a slab, or the source of a reshard. It counts
  // as held until its last owner releases it. If it fits into `room`, which may be null, it uses that reservation, and
  // returns it to the room at the end. Else it counts in addition, and unused read buffers are freed first.
  // RESOURCE_EXHAUSTED (MEMORY_LIMIT): the message says how much is needed, the budget, and how much is held.
  absl::StatusOr<std::shared_ptr<SharedMemory>> Make(const std::string& name, uint64_t bytes,
                                                     const std::shared_ptr<Room>& room = nullptr);
  // Reserves `bytes` of the budget, if they fit together with `beside` more bytes that the caller will allocate next.
  // RESOURCE_EXHAUSTED (MEMORY_LIMIT): they do not fit; the message has the numbers.
  absl::StatusOr<std::shared_ptr<Room>> Reserve(uint64_t bytes, uint64_t beside);
  // Returns whether `bytes` more bytes fit now.
  bool Fits(uint64_t bytes);

  // Returns a populated read buffer of at least `bytes`, with undefined contents. RESOURCE_EXHAUSTED: as Make.
  absl::StatusOr<std::shared_ptr<SharedMemory>> Take(uint64_t bytes);
  void GiveBack(std::shared_ptr<SharedMemory> buffer);
  // Frees read buffers that are not in use.
  void Trim();
  // Returns whether large memory of this pool has huge pages, where enough are free.
  bool has_huge_pages() const;
  // Returns how many bytes are held now.
  uint64_t held() const { return held_->load(); }

 private:
  // Counts `bytes` as held, if they fit together with `beside` more bytes.
  absl::Status Count(uint64_t bytes, uint64_t beside = 0, SharedMemory::Pages pages = SharedMemory::Pages::kOrdinary);
  // Counts the whole pages of `bytes` as held, by `room` if they fit into it. Returns what ends that.
  absl::StatusOr<std::function<void()>> Hold(SharedMemory::Pages pages, uint64_t bytes,
                                             const std::shared_ptr<Room>& room);
  absl::StatusOr<std::shared_ptr<SharedMemory>> MakeCounted(const std::string& name, uint64_t bytes,
                                                            const std::shared_ptr<Room>& room);
  // Makes memory that is already counted. Calls `uncount` once: when the memory is freed, or if making it fails.
  absl::StatusOr<std::shared_ptr<SharedMemory>> MakePages(SharedMemory::Pages pages, const std::string& name,
                                                          uint64_t bytes, std::function<void()> uncount) const;

  const uint64_t budget_;
  const int threads_;
  const bool set_aside_;
  const std::shared_ptr<std::atomic<uint64_t>> held_;  // bytes; memory may outlive the pool
  Mutex mutex_;
  std::list<std::shared_ptr<SharedMemory>> free_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cairn

#endif  // CAIRN_AGENT_READER_BUFFER_POOL_H_

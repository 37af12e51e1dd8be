// The shared memory of an agent: what it holds counts against one budget. Read buffers outlive a load, so that the next
// one finds their pages made.
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
  // A part of the budget that is kept for memory which is made later: it counts as held as long as the room, or memory
  // that was made in it, is there. Thread-safe.
  class Room;

  // `budget`: of all that is held, bytes; 0 for what container and machine allow. `threads` make the pages.
  BufferPool(uint64_t budget, int threads)
      : budget_(budget), threads_(threads), held_(std::make_shared<std::atomic<uint64_t>>(0)) {}

  // Populated memory of at least `bytes` that is no read buffer: a slab, the source of a reshard. It counts until its
  // last holder has let go of it. Buffers that are not out are freed first.
  // RESOURCE_EXHAUSTED (MEMORY_LIMIT): the message has what is needed, the budget, and what is held of it.
  // If it fits into `room`, it is taken from there, and goes back there; else it counts for itself. `room` may be null.
  absl::StatusOr<std::shared_ptr<SharedMemory>> Make(const std::string& name, uint64_t bytes,
                                                     const std::shared_ptr<Room>& room = nullptr);
  // Keeps room for `bytes`, if it fits with `beside` bytes more that its user is about to take.
  // RESOURCE_EXHAUSTED (MEMORY_LIMIT): it does not fit; the message has the numbers.
  absl::StatusOr<std::shared_ptr<Room>> Reserve(uint64_t bytes, uint64_t beside);
  // Returns whether so many bytes more fit now.
  bool Fits(uint64_t bytes);
  // Returns how much room memory of `bytes` takes: it has whole pages.
  static uint64_t WholePages(uint64_t bytes);

  // Returns a populated buffer of at least `bytes`. Its contents are undefined.
  // RESOURCE_EXHAUSTED (MEMORY_LIMIT).
  absl::StatusOr<std::shared_ptr<SharedMemory>> Take(uint64_t bytes);
  void GiveBack(std::shared_ptr<SharedMemory> buffer);
  // Frees what is not out.
  void Trim();
  // Returns how many bytes are held now.
  uint64_t held() const { return held_->load(); }

 private:
  // Counts `bytes` as held, if they fit with `beside` bytes more.
  absl::Status Count(uint64_t bytes, uint64_t beside = 0);
  absl::StatusOr<std::shared_ptr<SharedMemory>> MakeCounted(const std::string& name, uint64_t bytes);
  // Makes memory that is counted already. Calls `uncount` once: when the memory is gone, or if there will be none.
  absl::StatusOr<std::shared_ptr<SharedMemory>> MakePages(const std::string& name, uint64_t bytes,
                                                          std::function<void()> uncount) const;

  const uint64_t budget_;
  const int threads_;
  const std::shared_ptr<std::atomic<uint64_t>> held_;  // bytes; memory may outlive the pool
  Mutex mutex_;
  std::list<std::shared_ptr<SharedMemory>> free_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cairn

#endif  // CAIRN_AGENT_READER_BUFFER_POOL_H_

// The memory of one exchange over NCCL: what is lent to others, and windows for what is received and what is packed to
// be sent.
#ifndef CAIRN_AGENT_TRANSPORT_NCCL_EXCHANGE_MEMORY_H_
#define CAIRN_AGENT_TRANSPORT_NCCL_EXCHANGE_MEMORY_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "agent/reader/buffer_pool.h"
#include "agent/staging/memory_offers.h"
#include "agent/transport/nccl/worker_memory.h"
#include "gpu/nccl/group_keeper.h"

namespace cairn {

// Errors: those of WorkerMemory, and RESOURCE_EXHAUSTED (MEMORY_LIMIT). The caller must have taken the group's turn
// (GroupWorker::turn). Not thread-safe, but for patience().
class ExchangeMemory {
 public:
  // The worker has two steps at a time, and each of them has windows of its own.
  static constexpr size_t kWindows = 2;
  struct Window {
    std::shared_ptr<SharedMemory> memory;
    uint64_t number = 0;  // by which the worker knows it
    uint64_t id = 0;      // by which the trainer gets it; 0 for one that is packed
  };

  // `room` is where windows are made, as far as it suffices; it may be null. `grace`: see WorkerMemory. `offers`: for
  // the trainer, which copies out of what was received.
  ExchangeMemory(std::shared_ptr<GroupWorker> group, BufferPool& pool, std::shared_ptr<BufferPool::Room> room,
                 absl::Duration grace, MemoryOffers offers)
      : pool_(pool), room_(std::move(room)), offers_(std::move(offers)), worker_(std::move(group), grace) {}
  // Withdraws what was offered. What the worker has stays lent: see UnmapAll.
  ~ExchangeMemory();
  ExchangeMemory(const ExchangeMemory&) = delete;
  ExchangeMemory& operator=(const ExchangeMemory&) = delete;

  // Makes windows of at least so many bytes, if there are none yet.
  absl::Status MakeReceived(uint64_t bytes);
  absl::Status MakePacked(uint64_t bytes);
  // Lends memory of this rank to be sent from, once. Returns the number by which the worker knows it.
  absl::StatusOr<uint64_t> MapSource(const std::shared_ptr<SharedMemory>& memory) {
    return worker_.Map(memory, /*writable=*/false);
  }
  const Window& received(size_t window) const { return received_[window]; }
  const Window& packed(size_t window) const { return packed_[window]; }

  absl::Status UnmapAll() { return worker_.UnmapAll(); }
  // Returns how long the worker may take to give back all that it has now.
  absl::Duration patience() const { return worker_.patience(); }

 private:
  using Windows = std::array<Window, kWindows>;

  static bool HaveRoom(const Windows& windows, uint64_t bytes);
  absl::Status Drop(Windows& windows);

  BufferPool& pool_;
  const std::shared_ptr<BufferPool::Room> room_;
  const MemoryOffers offers_;
  WorkerMemory worker_;
  Windows received_;
  Windows packed_;
};

}  // namespace cairn

#endif  // CAIRN_AGENT_TRANSPORT_NCCL_EXCHANGE_MEMORY_H_

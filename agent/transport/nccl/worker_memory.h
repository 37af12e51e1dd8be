// The memory that an agent has lent its group's worker for one exchange. The caller must have taken the group's turn
// (GroupWorker::turn).
#ifndef CAIRN_AGENT_TRANSPORT_NCCL_WORKER_MEMORY_H_
#define CAIRN_AGENT_TRANSPORT_NCCL_WORKER_MEMORY_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "agent/staging/shared_memory.h"
#include "gpu/nccl/group_keeper.h"
#include "gpu/share/gpu_worker.pb.h"

namespace cairn {

// Errors: UNAVAILABLE (TRANSPORT_FAILED): the worker has failed or does not answer. Not thread-safe, but for
// patience().
class WorkerMemory {
 public:
  // `grace`: how long the worker may take for a request that maps or unmaps no byte; see patience().
  WorkerMemory(std::shared_ptr<GroupWorker> group, absl::Duration grace) : group_(std::move(group)), grace_(grace) {}

  // Returns the number by which the worker knows the memory. The same memory is mapped once.
  absl::StatusOr<uint64_t> Map(const std::shared_ptr<SharedMemory>& memory, bool writable);
  // The same for a part of memory that is not mapped yet. The worker can never write to it: the memory is sealed, and
  // the descriptor is one to read. `offset` is a multiple of PageBytes(). Also the errors of
  // SharedMemory::OpenReadOnly.
  absl::StatusOr<uint64_t> MapPart(const std::shared_ptr<SharedMemory>& memory, uint64_t offset, uint64_t bytes);
  // Takes one back, if it is lent.
  absl::Status Unmap(const SharedMemory* memory);
  // Takes all of it back.
  absl::Status UnmapAll();
  // Returns how long the worker may take to give back all that it has now: the grace, and more for each byte.
  absl::Duration patience() const { return PatienceFor(bytes_); }

 private:
  struct Mapped {
    std::shared_ptr<SharedMemory> memory;
    uint64_t bytes = 0;
    uint64_t number = 0;
  };
  using Lent = std::vector<Mapped>::iterator;

  absl::StatusOr<uint64_t> Map(std::shared_ptr<SharedMemory> memory, worker::Map map, int descriptor);
  Lent Find(const SharedMemory* memory);
  absl::Status Unmap(Lent lent);
  absl::Duration PatienceFor(uint64_t bytes) const;

  const std::shared_ptr<GroupWorker> group_;
  const absl::Duration grace_;
  std::vector<Mapped> mapped_;
  std::atomic<uint64_t> bytes_ = 0;
};

}  // namespace cairn

#endif  // CAIRN_AGENT_TRANSPORT_NCCL_WORKER_MEMORY_H_

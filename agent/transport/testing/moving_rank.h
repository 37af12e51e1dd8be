// Ranks of one process that move shards of a save over NCCL's stand-in, each with a worker process of its own.
#ifndef CAIRN_AGENT_TRANSPORT_TESTING_MOVING_RANK_H_
#define CAIRN_AGENT_TRANSPORT_TESTING_MOVING_RANK_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "agent/reader/buffer_pool.h"
#include "agent/session/save_image.h"
#include "agent/transport/nccl/exchanged_shards.h"
#include "agent/transport/nccl/moved_exchange.h"
#include "agent/transport/nccl/round_gate.h"
#include "common/base/mutex.h"
#include "gpu/nccl/group_keeper.h"

namespace cairn::testing {

// Names a shard that one rank holds and another one writes.
struct Moving {
  uint32_t from = 0;
  uint32_t to = 0;
  uint64_t bytes = 0;
};

// One rank: its slab, and what its writer asks for shards. The slab holds its moved-out shards from a random place on,
// and behind them room for those that are moved in.
class MovingRank {
 public:
  MovingRank(uint32_t rank, std::shared_ptr<GroupWorker> group, const std::vector<Moving>& moves,
             std::shared_ptr<RoundGate> gate, MovedExchangeOptions options);
  ~MovingRank();

  ExchangedShards& shards() { return *shards_; }
  GroupWorker& group() { return *group_; }
  WorkerProcess& worker() { return *group_->worker; }
  size_t moved_in() const { return image_->moved_in.size(); }
  uint64_t bytes(size_t index) const { return image_->moved_in[index].item.bytes(); }
  // Fetches a whole shard to where its file has it, or elsewhere.
  absl::Status Fetch(size_t index, std::string* elsewhere = nullptr);
  // Returns what stands in the file's place.
  std::string Standing(size_t index) const;
  // Returns the bytes that its holder has.
  static std::string Expected(uint32_t from, uint32_t shard, uint64_t bytes);
  std::string Expected(size_t index) const;
  absl::Status broken();
  // Returns how often shards were asked for over the host transport.
  int host_fetches();

 private:
  class Host;

  const uint32_t rank_;
  const std::shared_ptr<GroupWorker> group_;
  BufferPool pool_{0, 1};
  SaveImagePtr image_;
  std::shared_ptr<SharedMemory> slab_;
  std::vector<uint64_t> place_;  // by index of moved_in
  Mutex mutex_;
  absl::Status broken_ ABSL_GUARDED_BY(mutex_);
  int host_fetches_ ABSL_GUARDED_BY(mutex_) = 0;
  std::unique_ptr<ExchangedShards> shards_;
};

// Starts the workers of so many ranks and lets them join one group. Dies if they cannot.
std::vector<std::shared_ptr<GroupWorker>> JoinWorkers(uint32_t count, const WorkerProcessOptions& options);

}  // namespace cairn::testing

#endif  // CAIRN_AGENT_TRANSPORT_TESTING_MOVING_RANK_H_

// One rank's part in an exchange over NCCL of the shards that move between ranks in a save: what it sends out of its
// slab, and what it receives for the files that it writes.
#ifndef CAIRN_AGENT_TRANSPORT_NCCL_MOVED_EXCHANGE_H_
#define CAIRN_AGENT_TRANSPORT_NCCL_MOVED_EXCHANGE_H_

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "agent/reader/buffer_pool.h"
#include "agent/session/save_image.h"
#include "agent/staging/shared_memory.h"
#include "agent/transport/nccl/moved_windows.h"
#include "agent/transport/nccl/round_pace.h"
#include "agent/transport/nccl/step_pipe.h"
#include "agent/transport/nccl/worker_memory.h"
#include "common/base/mutex.h"
#include "common/process/task_queue.h"
#include "gpu/nccl/exchange_schedule.h"
#include "gpu/nccl/group_keeper.h"

namespace cairn {

struct MovedExchangeOptions {
  uint32_t rank = 0;
  int64_t step = 0;  // for the log
  // This rank exchanges with these ranks of the job.
  std::set<uint32_t> peers;
  uint64_t window_bytes = 0;
  // A step of the exchange that has not ended after this time is given up, and its peers are named. The time counts
  // from the end of the step before it.
  absl::Duration stall_timeout = absl::Seconds(5);
  // An exchange that ends may keep the worker for so long.
  absl::Duration turn_timeout = absl::Seconds(10);
  // The exchange is given up if not all ranks have come to it after this time, and what they need to map memory.
  absl::Duration gate_timeout = absl::Seconds(20);
  // The group cannot be used any more. Called from the exchange's thread, or from Cancel's, without a lock.
  std::function<void(const absl::Status&)> on_break;
};

// Thread-safe. The worker can only read the slab, and it writes into memory that is the exchange's alone, out of which
// the bytes are copied when a step has ended. So nothing that a worker does after its step can change what is written.
// When the exchange is over, the worker has given the memory back, or is dead.
class MovedExchange {
 public:
  // Says where shards are to stand.
  struct Places {
    // They are by index of SaveImage::moved_in. One is null if its shard does not come by the exchange.
    std::vector<char*> at;
    // Holds them, if they are not in the slab.
    std::shared_ptr<SharedMemory> memory = nullptr;
  };

  // By `pace` this rank waits until all have come.
  MovedExchange(std::shared_ptr<GroupWorker> group, SaveImagePtr staged, SaveImagePtr target,
                std::shared_ptr<SharedMemory> slab, Places places, std::unique_ptr<RoundPace> pace, BufferPool& pool,
                MovedExchangeOptions options);
  // Cancels, and waits.
  ~MovedExchange();

  // RESOURCE_EXHAUSTED (MEMORY_LIMIT): the system gives no thread; then nothing was begun.
  absl::Status Start();
  // Gives up what is not done; does not wait. The error of those who wait is `why`. Idempotent.
  void Cancel(const absl::Status& why);

  // Blocks until the first `bytes` of a moved shard stand in its place. Else the error of the exchange; then nothing is
  // written into any place any more. UNAVAILABLE (TRANSPORT_FAILED), or what Cancel was given.
  absl::Status Await(size_t index, uint64_t bytes);
  // Blocks until the exchange is over. Returns how it ended.
  absl::Status AwaitEnd();
  bool over();
  // Returns whether bytes have come.
  bool used();
  const char* place(size_t index) const { return places_.at[index]; }

 private:
  // Holds what one step has brought, which is copied out while the next step goes on.
  struct Slot {
    std::shared_ptr<SharedMemory> memory;
    uint64_t number = 0;  // by which the worker knows it
  };
  // Names a piece that has come into a slot.
  struct Arrived {
    MovedPiece piece;
    uint64_t offset = 0;
  };

  void Run();
  absl::Status Exchange();
  // Gives the worker what is sent, and room for what is received.
  absl::Status MapMemory();
  absl::Status MapSent();
  absl::Status AwaitAll();
  absl::Status BeginStep(const ExchangeStep& step, size_t place);
  void CopyOut(size_t place, const std::vector<Arrived>& arrived);
  absl::Status StepError(const absl::Status& error, const ExchangeStep& step) const;

  const std::shared_ptr<GroupWorker> group_;
  const SaveImagePtr staged_;
  const SaveImagePtr target_;
  const std::shared_ptr<SharedMemory> slab_;
  const Places places_;
  const std::unique_ptr<RoundPace> pace_;
  BufferPool& pool_;
  const MovedExchangeOptions options_;

  // Only the exchange's thread uses these.
  WorkerMemory memory_;
  std::vector<MovedWindow> windows_;
  std::vector<ExchangeStep> steps_;
  uint64_t sent_number_ = 0;  // by which the worker knows the part of the slab that is sent from
  uint64_t sent_begin_ = 0;   // where it begins in the slab
  std::array<Slot, StepPipe::kPlaces> slots_;
  TaskQueue copies_{1};

  Mutex mutex_;
  CondVar changed_;
  std::vector<uint64_t> arrived_ ABSL_GUARDED_BY(mutex_);  // bytes, by index of moved_in
  absl::Status error_ ABSL_GUARDED_BY(mutex_);             // nothing is copied any more
  absl::Status cancelled_ ABSL_GUARDED_BY(mutex_);
  bool begun_ ABSL_GUARDED_BY(mutex_) = false;
  bool over_ ABSL_GUARDED_BY(mutex_) = false;
  StepPipe pipe_;
  std::thread thread_;
};

}  // namespace cairn

#endif  // CAIRN_AGENT_TRANSPORT_NCCL_MOVED_EXCHANGE_H_

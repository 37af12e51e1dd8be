// Keeps what a trainer shares of its GPUs' memory, in a worker that is started when the first block comes and ended
// when the trainer is gone. The agent itself holds none of it.
#ifndef CAIRN_AGENT_EXECUTION_DEVICE_KEEPER_H_
#define CAIRN_AGENT_EXECUTION_DEVICE_KEEPER_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "agent/session/device_memory.h"
#include "agent/staging/shared_memory.h"
#include "common/base/mutex.h"
#include "common/file/unique_fd.h"
#include "common/process/task_queue.h"
#include "gpu/share/worker_process.h"

namespace cairn {

struct DeviceKeeperOptions {
  WorkerProcessOptions worker;
  // All are called from a thread of the keeper, without a lock, for DeviceShare::OnOfferTaken and OnCopied. When
  // `on_copied` is called, nothing writes into the slab any more.
  std::function<void(uint64_t offer, const absl::Status&)> on_taken;
  std::function<void(uint64_t copy, absl::StatusOr<DeviceCopied>)> on_copied;
};

// Calls do not wait; they are followed one after the other. Thread-safe.
class DeviceKeeper {
 public:
  struct Order {
    uint64_t copy = 0;  // larger than those before
    uint64_t slab_id = 0;
    std::shared_ptr<SharedMemory> slab;
    DeviceMemoryPartsPtr parts;
    std::vector<DeviceBlock> ipc;
    absl::Time deadline;  // of the steady clock
  };

  explicit DeviceKeeper(DeviceKeeperOptions options) : options_(std::move(options)) {}
  ~DeviceKeeper() { Stop(); }

  // Takes blocks by their descriptors, which are parallel. If one cannot be taken, the worker is ended.
  void Take(uint64_t offer, std::vector<DeviceBlock> blocks, std::vector<UniqueFd> descriptors);
  void Drop(std::vector<uint64_t> blocks);
  // A copy that fails, or does not end in time, has its worker ended, and so all blocks are given back.
  void Copy(Order order);
  void StopCopy(uint64_t copy);
  // The slab is to be given up: the worker lets go of it, so that its pages are free.
  void LetGoOfSlab();
  // Gives everything back.
  void End();
  // Gives everything back, waits for that, and follows no call any more. Idempotent.
  void Stop();

 private:
  // The queue's thread runs these.
  absl::Status TakeNow(const std::vector<DeviceBlock>& blocks, const std::vector<UniqueFd>& descriptors);
  absl::StatusOr<DeviceCopied> CopyNow(const Order& order);
  // Sets up what the copies need. Returns why the driver refuses that; empty if it does not.
  absl::StatusOr<std::string> Prepare(WorkerProcess& worker, const Order& order, DeviceCopied& copied);
  absl::Status CopyParts(WorkerProcess& worker, const Order& order, DeviceCopied& copied);
  absl::Status Import(WorkerProcess& worker, const DeviceBlock& block, int descriptor, absl::Duration timeout);
  absl::Status DropNow(WorkerProcess& worker, const std::vector<uint64_t>& blocks, absl::Duration timeout);
  absl::StatusOr<std::shared_ptr<WorkerProcess>> Worker();
  // Returns the worker if it still answers; null if there is none. One that does not is ended.
  std::shared_ptr<WorkerProcess> Living(absl::Duration timeout);
  void EndNow(const char* why);
  uint64_t HeldBytes() const;
  bool IsStopped(uint64_t copy);

  const DeviceKeeperOptions options_;
  Mutex mutex_;
  std::shared_ptr<WorkerProcess> worker_ ABSL_GUARDED_BY(mutex_);
  uint64_t stopped_copy_ ABSL_GUARDED_BY(mutex_) = 0;  // this one and all before
  uint64_t running_copy_ ABSL_GUARDED_BY(mutex_) = 0;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  // The queue's thread alone uses these.
  std::optional<uint64_t> mapped_slab_;
  std::string unpinned_;               // why the mapped slab is not pinned
  std::map<uint64_t, uint64_t> held_;  // the bytes of each block that the worker has
  TaskQueue queue_{1};
};

}  // namespace cairn

#endif  // CAIRN_AGENT_EXECUTION_DEVICE_KEEPER_H_

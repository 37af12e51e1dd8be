// Keeps the worker of a group at work: while it moves the bytes of one step, it has the next one already.
#ifndef CAIRN_AGENT_TRANSPORT_NCCL_STEP_PIPE_H_
#define CAIRN_AGENT_TRANSPORT_NCCL_STEP_PIPE_H_

#include <array>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <thread>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/base/mutex.h"
#include "gpu/nccl/exchange_schedule.h"
#include "gpu/nccl/group_keeper.h"
#include "gpu/share/gpu_worker.pb.h"

namespace cairn {

// One thread gives it steps; a thread of its own waits for their ends. What a step brings stands in one of two places,
// and whoever takes it from there holds the place. All methods have the error of the step that failed, as it was
// explained, or that of Cancel; no other step is begun then.
class StepPipe {
 public:
  // As many as a worker takes steps.
  static constexpr size_t kPlaces = 2;
  // Says what an error of the worker means, by the step in which it was met.
  using Explain = std::function<absl::Status(const absl::Status&, const ExchangeStep&)>;

  // `stall_timeout`: how long a step may take once the one before it is done.
  StepPipe(std::shared_ptr<GroupWorker> group, absl::Duration stall_timeout, Explain explain)
      : group_(std::move(group)), stall_timeout_(stall_timeout), explain_(std::move(explain)) {}
  // Ends.
  ~StepPipe() { End(); }

  // RESOURCE_EXHAUSTED (MEMORY_LIMIT): the system gives no thread.
  absl::Status Start();
  // Waits until fewer than two steps are under way.
  absl::Status AwaitRoom();
  // Waits until nobody holds a place.
  absl::Status AwaitPlace(size_t place);
  // Gives the worker a step that brings something into a place. There must be room for it, and nobody may hold the
  // place. `step` stays until it is done. If it ends well, the place is held by so many `holders`, and `done` is called
  // from the pipe's thread.
  absl::Status Post(const ExchangeStep& step, worker::Step request, size_t place, size_t holders,
                    std::function<void()> done);
  // One holder needs the place no longer. Any thread may call it.
  void Release(size_t place);
  // Waits until all steps are done.
  absl::Status Drain();
  // Those who wait are told `why`. Does not end a step. Any thread may call it.
  void Cancel(const absl::Status& why);
  // Waits for the steps that are under way: they end, fail by the stall timeout, or because the worker was cancelled.
  // Idempotent.
  void End();

 private:
  struct Posted {
    const ExchangeStep* step = nullptr;
    uint64_t number = 0;
    size_t place = 0;
    size_t holders = 0;
    std::function<void()> done;
  };

  void Run();
  absl::Status AwaitFewerThan(size_t steps);

  const std::shared_ptr<GroupWorker> group_;
  const absl::Duration stall_timeout_;
  const Explain explain_;
  Mutex mutex_;
  CondVar changed_;
  std::deque<Posted> posted_ ABSL_GUARDED_BY(mutex_);
  std::array<size_t, kPlaces> holders_ ABSL_GUARDED_BY(mutex_) = {};  // of each place
  absl::Status error_ ABSL_GUARDED_BY(mutex_);
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace cairn

#endif  // CAIRN_AGENT_TRANSPORT_NCCL_STEP_PIPE_H_

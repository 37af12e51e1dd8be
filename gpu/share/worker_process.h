// The agent's end of a cairn-gpu-worker.
#ifndef CAIRN_GPU_SHARE_WORKER_PROCESS_H_
#define CAIRN_GPU_SHARE_WORKER_PROCESS_H_

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/mutex.h"
#include "common/rpc/exchange_fault.h"
#include "gpu/share/gpu_worker.pb.h"
#include "gpu/share/worker_socket.h"

namespace cairn {

struct WorkerProcessOptions {
  std::string program;  // the path of cairn-gpu-worker
  // Names that the loader looks up, or absolute paths.
  std::string libcuda = "libcuda.so.1";
  std::string libnccl = "libnccl.so.2";
  // After its socket is closed the worker may take so long to end; then it is killed.
  absl::Duration grace = absl::Seconds(5);
};

// Calls are made by one thread at a time, but for Cancel and End, and for BeginStep, which another thread may call than
// the one that is in AwaitStep. Nothing that the worker does can harm the agent: a call ends by its timeout, and what
// the worker says is checked.
//
// Errors: UNAVAILABLE (TRANSPORT_FAILED) says what the worker said, or how it ended; the worker can only be ended then.
class WorkerProcess {
 public:
  // UNAVAILABLE (TRANSPORT_FAILED): the program cannot be started.
  static absl::StatusOr<std::unique_ptr<WorkerProcess>> Start(const WorkerProcessOptions& options);
  // Ends the worker.
  ~WorkerProcess() { End(); }

  absl::StatusOr<worker::Described> Describe(absl::Duration timeout);
  // The secret by which ranks join a group.
  absl::StatusOr<std::string> MakeUniqueId(absl::Duration timeout);
  // Returns what the group takes of the device's memory. DEADLINE_EXCEEDED (TIMED_OUT): other ranks have not come in
  // time. UNAVAILABLE (TRANSPORT_FAILED) if the worker itself does not answer any more.
  absl::StatusOr<uint64_t> Join(const worker::Join& join, absl::Duration timeout);
  absl::Status Map(const worker::Map& map, int descriptor, absl::Duration timeout);
  absl::Status Unmap(uint64_t memory, absl::Duration timeout);
  // Gives the worker a step, and does not wait. Two may be under way; they are counted from 1, and done in their order.
  // If the worker has ended, AwaitStep says so. RESOURCE_EXHAUSTED (MESSAGE_TOO_LARGE); UNAVAILABLE (TRANSPORT_FAILED):
  // the worker has not got it.
  absl::Status BeginStep(const worker::Step& step);
  // Waits until the step with this number is done. DEADLINE_EXCEEDED (TIMED_OUT): it was not done in time, and the
  // worker waits for other ranks. UNAVAILABLE (TRANSPORT_FAILED) if the worker itself does not answer any more.
  absl::Status AwaitStep(uint64_t number, absl::Duration timeout);

  // Asks for what device_worker.proto has. UNAVAILABLE (DEVICE_ERROR): the worker refused it, and goes on.
  // DEADLINE_EXCEEDED (TIMED_OUT).
  absl::StatusOr<worker::DeviceEvent> ReadDevice(const worker::DeviceRequest& request, int descriptor,
                                                 absl::Duration timeout);

  // Ends what a call waits for, from any thread. The worker aborts and ends.
  void Cancel() { socket_.Close(); }
  // Cancels, and waits until the process is gone. If it outlives the grace, it is killed. May be called from any
  // thread; idempotent.
  void End();
  pid_t pid() const { return pid_; }

 private:
  WorkerProcess(UniqueFd socket, pid_t pid, absl::Duration grace)
      : socket_(std::move(socket)), pid_(pid), grace_(grace) {}

  // Sends a request and waits for its answer, which must be of the kind that is given.
  absl::StatusOr<worker::WorkerEvent> Ask(const worker::WorkerRequest& request, int descriptor,
                                          worker::WorkerEvent::EventCase expected, absl::Duration timeout);
  absl::StatusOr<worker::WorkerEvent> Await(absl::Duration timeout);
  // Takes events until `done`. Asks in between whether the worker goes on. Errors as those of AwaitStep.
  absl::Status AwaitAsking(absl::Duration timeout, const std::function<bool()>& done);
  // Takes an event while the worker joins, or steps are under way. Returns whether it is a pong.
  absl::StatusOr<bool> TakeEvent(absl::Time until);
  // Returns whether the process is gone. Takes its status if so.
  bool Reap();
  // Waits for the end of the process. False: it goes on.
  bool AwaitEnd(absl::Duration timeout);
  absl::Status Ended();

  WorkerSocket socket_;
  const pid_t pid_;
  const absl::Duration grace_;
  uint64_t steps_done_ = 0;  // the number of the last one
  std::optional<worker::Joined> joined_;
  Mutex mutex_;
  bool reaped_ ABSL_GUARDED_BY(mutex_) = false;
  int exit_status_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace cairn

#endif  // CAIRN_GPU_SHARE_WORKER_PROCESS_H_

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
  // Each is a name that the loader looks up, or an absolute path.
  std::string libcuda = "libcuda.so.1";
  std::string libnccl = "libnccl.so.2";
  // How long the worker may take to end after its socket is closed. Then it is killed.
  absl::Duration grace = absl::Seconds(5);
};

// Methods may be called by one thread at a time, with two exceptions: Cancel and End may be called at any time, and
// BeginStep while another thread is in AwaitStep. The worker cannot harm the agent: each call ends by its timeout, and
// the worker's messages are checked.
//
// Errors: UNAVAILABLE (TRANSPORT_FAILED): the worker reported an error or has ended; the message says which. After it
// only End is useful.
class WorkerProcess {
 public:
  // UNAVAILABLE (TRANSPORT_FAILED): the program cannot be started.
  static absl::StatusOr<std::unique_ptr<WorkerProcess>> Start(const WorkerProcessOptions& options);
  ~WorkerProcess() { End(); }

  absl::StatusOr<worker::Described> Describe(absl::Duration timeout);
  // Returns a new secret by which ranks join a group.
  absl::StatusOr<std::string> MakeUniqueId(absl::Duration timeout);
  // Joins a group. Returns how many bytes of device memory the group uses. DEADLINE_EXCEEDED (TIMED_OUT): other ranks
  // have not joined in time. UNAVAILABLE (TRANSPORT_FAILED): also if the worker does not answer pings.
  absl::StatusOr<uint64_t> Join(const worker::Join& join, absl::Duration timeout);
  absl::Status Map(const worker::Map& map, int descriptor, absl::Duration timeout);
  absl::Status Unmap(uint64_t memory, absl::Duration timeout);
  // Sends the worker a step and does not wait for it. At most two steps may run; they are numbered from 1 and executed
  // in order. If the worker has ended, AwaitStep returns the error. RESOURCE_EXHAUSTED (MESSAGE_TOO_LARGE): the step is
  // too large for one packet. UNAVAILABLE (TRANSPORT_FAILED): the step could not be sent.
  absl::Status BeginStep(const worker::Step& step);
  // Waits until the step with this number is done. DEADLINE_EXCEEDED (TIMED_OUT): the step was not done in time,
  // although the worker answers: it waits for other ranks. UNAVAILABLE (TRANSPORT_FAILED): also if the worker does not
  // answer pings.
  absl::Status AwaitStep(uint64_t number, absl::Duration timeout);

  // Sends a request of device_worker.proto and returns the answer. UNAVAILABLE (DEVICE_ERROR): the worker refused the
  // request, and continues to serve. DEADLINE_EXCEEDED (TIMED_OUT): no answer came in time.
  absl::StatusOr<worker::DeviceEvent> ReadDevice(const worker::DeviceRequest& request, int descriptor,
                                                 absl::Duration timeout);

  // Makes a waiting call return. The worker aborts and ends. May be called from any thread.
  void Cancel() { socket_.Close(); }
  // Calls Cancel and waits for the process's end; kills it after the grace. May be called from any thread. Idempotent.
  void End();
  pid_t pid() const { return pid_; }

 private:
  WorkerProcess(UniqueFd socket, pid_t pid, absl::Duration grace)
      : socket_(std::move(socket)), pid_(pid), grace_(grace) {}

  // Sends a request and waits for its answer, which must be of the kind `expected`.
  absl::StatusOr<worker::WorkerEvent> Ask(const worker::WorkerRequest& request, int descriptor,
                                          worker::WorkerEvent::EventCase expected, absl::Duration timeout);
  absl::StatusOr<worker::WorkerEvent> Await(absl::Duration timeout);
  // Receives events until `done` returns true. Sends pings meanwhile. Fails as AwaitStep.
  absl::Status AwaitAsking(absl::Duration timeout, const std::function<bool()>& done);
  // Receives an event while the worker joins a group or executes steps. Returns whether it is a pong.
  absl::StatusOr<bool> TakeEvent(absl::Time until);
  // Returns whether the process has ended. If so, stores its exit status.
  bool Reap();
  // Waits for the end of the process. Returns false if it still runs after `timeout`.
  bool AwaitEnd(absl::Duration timeout);
  absl::Status Ended();

  WorkerSocket socket_;
  const pid_t pid_;
  const absl::Duration grace_;
  uint64_t steps_done_ = 0;  // the number of the last step that is done
  std::optional<worker::Joined> joined_;
  Mutex mutex_;
  bool reaped_ ABSL_GUARDED_BY(mutex_) = false;
  int exit_status_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace cairn

#endif  // CAIRN_GPU_SHARE_WORKER_PROCESS_H_

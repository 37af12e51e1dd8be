// cairn-gpu-worker: the one process of an agent that calls CUDA and NCCL. An NCCL call may hang, an error may break the
// process's context for good, and device memory is certainly released only when the process ends. So all these calls
// are in the worker, and the agent ends the worker when there is an error or it does not need it any more.
#ifndef CAIRN_GPU_SHARE_WORKER_H_
#define CAIRN_GPU_SHARE_WORKER_H_

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "gpu/driver/driver.h"
#include "gpu/driver/library.h"
#include "gpu/share/device_reader.h"
#include "gpu/share/gpu_worker.pb.h"
#include "gpu/share/look_pace.h"
#include "gpu/share/worker_socket.h"

namespace cairn {

struct WorkerLibraries {
  std::string driver = GpuDriver::kLibrary;
  std::string nccl = NcclLibrary::kLibrary;
};

// Answers the requests of gpu_worker.proto in order. Requests are untrusted: it never reads or writes outside of the
// memory that it was given. Not thread-safe.
class Worker {
 public:
  Worker(UniqueFd socket, WorkerLibraries libraries);
  // Unmaps the memory. If a step has not ended, it stays mapped until the process ends: the device may still write.
  ~Worker();

  // Serves requests until the agent closes its end of the socket or a request fails. Then aborts the group, which may
  // hang.
  void Run();

 private:
  struct Memory {
    char* data = nullptr;
    uint64_t bytes = 0;
    bool writable = false;
  };

  // Waits for a packet or the next poll, and handles it. Returns false when the worker must end.
  bool Serve();
  absl::Status Handle(const worker::WorkerRequest& request, UniqueFd descriptor);
  absl::Status Open();
  absl::Status Describe();
  absl::Status MakeId();
  absl::Status Join(const worker::Join& join);
  absl::Status Map(const worker::Map& map, const UniqueFd& descriptor);
  absl::Status Unmap(const worker::Unmap& unmap);
  absl::Status Register(Memory& memory);
  void Release(const Memory& memory);
  absl::Status CheckStep(const worker::Step& step) const;
  // Starts the step, or keeps it in next_step_ until the previous one is in the stream.
  absl::Status TakeStep(const worker::Step& step);
  absl::Status StartStep(const worker::Step& step);
  absl::Status ReadDevice(const worker::DeviceRequest& request, const UniqueFd& descriptor);

  // Returns whether the group joins or executes steps.
  bool busy() const { return joining_ || !steps_.empty(); }
  // Returns whether all work of the last step is in the stream.
  bool under_way() const { return !joining_ && steps_.back().recorded; }
  absl::Status Look();
  absl::Status FinishJoin();
  absl::Status FinishStep();

  absl::Status Send(const worker::WorkerEvent& event) { return socket_.Send(event, -1); }
  absl::Status DriverError(std::string_view call, cuda::Result result) const;
  absl::Status NcclError(const char* call, nccl::Result result) const;

  WorkerSocket socket_;
  const WorkerLibraries libraries_;
  const GpuDriver* driver_ = nullptr;
  std::unique_ptr<const NcclLibrary> nccl_;

  cuda::Context context_ = nullptr;
  cuda::Stream stream_ = nullptr;
  // One is recorded behind each running step.
  std::array<cuda::Event, 2> events_ = {};
  nccl::Comm comm_ = nullptr;
  uint32_t rank_ = 0;  // within the group
  uint32_t ranks_ = 0;
  uint64_t free_before_ = 0;
  bool joining_ = false;
  std::map<uint64_t, Memory> memory_;
  uint64_t last_step_ = 0;
  struct RunningStep {
    uint64_t number = 0;
    cuda::Event event = nullptr;
    bool recorded = false;  // the event is recorded behind the step's work
  };
  std::deque<RunningStep> steps_;          // in their order
  std::optional<worker::Step> next_step_;  // waits until it can be put into the stream
  LookPace pace_;
  DeviceReader reader_;
};

}  // namespace cairn

#endif  // CAIRN_GPU_SHARE_WORKER_H_

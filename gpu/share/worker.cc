#include "gpu/share/worker.h"

#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/reason.h"
#include "common/status/status.h"

namespace cairn {
namespace {

// The size of pieces to register. The driver's other calls wait while it registers a piece.
constexpr uint64_t kPiece = uint64_t{256} << 20;
constexpr unsigned kMostRanks = 4096;
constexpr size_t kMostMemories = 64;
// Limits the GPU's multiprocessors that NCCL's kernels take from the trainer.
constexpr int kMostBlocks = 8;

absl::Status Refused(const std::string& what) { return MakeError(Reason::kBadRequest, what); }

}  // namespace

Worker::Worker(UniqueFd socket, WorkerLibraries libraries)
    : socket_(std::move(socket)), libraries_(std::move(libraries)), reader_(libraries_.driver) {}

Worker::~Worker() {
  // The device may still write the received bytes of a step, even after the group was aborted. Only the end of the
  // process certainly stops it.
  if (!steps_.empty()) return;
  for (const auto& [id, memory] : memory_) Release(memory);
}

absl::Status Worker::DriverError(std::string_view call, cuda::Result result) const {
  return MakeError(Reason::kDeviceError, absl::StrCat(std::string(call), ": ", driver_->NameOf(result)));
}

absl::Status Worker::NcclError(const char* call, nccl::Result result) const {
  return MakeError(Reason::kTransportFailed, absl::StrCat(call, ": ", nccl_->Describe(result, comm_)));
}

void Worker::Run() {
  while (Serve()) {
  }
  if (comm_ != nullptr) (void)nccl_->call().comm_abort(comm_);
}

bool Worker::Serve() {
  absl::Status done;
  if (!busy()) pace_.Idle();
  const absl::Duration pause = busy() ? pace_.Pause(under_way()) : absl::InfiniteDuration();
  const auto ready = socket_.Await(pause);
  if (!ready.ok()) return false;
  if (!*ready) pace_.Waited(pause);
  if (*ready) {
    worker::WorkerRequest request;
    UniqueFd descriptor;
    const auto received = socket_.Receive(request, descriptor);
    if (received.ok() && !*received) return false;
    done = received.ok() ? Handle(request, std::move(descriptor)) : received.status();
  }
  if (done.ok() && busy()) done = Look();
  if (done.ok()) return true;
  worker::WorkerEvent event;
  event.mutable_failed()->set_error(std::string(done.message()));
  (void)Send(event);
  // Run then aborts the group, and the worker ends when the agent has read the error.
  return false;
}

absl::Status Worker::Handle(const worker::WorkerRequest& request, UniqueFd descriptor) {
  if (request.has_ping()) {
    worker::WorkerEvent event;
    event.mutable_pong();
    return Send(event);
  }
  if (request.has_step() && !joining_) return TakeStep(request.step());
  if (busy()) return Refused("a request came before the last one was answered");
  switch (request.request_case()) {
    case worker::WorkerRequest::kDescribe:
      return Describe();
    case worker::WorkerRequest::kMakeId:
      return MakeId();
    case worker::WorkerRequest::kJoin:
      return Join(request.join());
    case worker::WorkerRequest::kMap:
      return Map(request.map(), descriptor);
    case worker::WorkerRequest::kUnmap:
      return Unmap(request.unmap());
    case worker::WorkerRequest::kDevice:
      return ReadDevice(request.device(), descriptor);
    case worker::WorkerRequest::kStep:
    case worker::WorkerRequest::kPing:
    case worker::WorkerRequest::REQUEST_NOT_SET:
      break;
  }
  return Refused("an unknown request");
}

absl::Status Worker::Open() {
  std::string error;
  if (driver_ == nullptr) driver_ = GpuDriver::Open(libraries_.driver, &error);
  if (driver_ == nullptr) return MakeError(Reason::kDeviceError, error);
  if (nccl_ == nullptr) nccl_ = NcclLibrary::Open(libraries_.nccl, &error);
  if (nccl_ == nullptr) return MakeError(Reason::kDeviceError, error);
  return absl::OkStatus();
}

absl::Status Worker::Describe() {
  CAIRN_RETURN_IF_ERROR(Open());
  worker::WorkerEvent event;
  worker::Described& described = *event.mutable_described();
  described.set_nccl_version(nccl_->version());
  int version = 0, devices = 0;
  if (const auto got = driver_->call().driver_get_version(&version); got != cuda::kSuccess) {
    return DriverError("cuDriverGetVersion", got);
  }
  if (const auto got = driver_->call().device_get_count(&devices); got != cuda::kSuccess) {
    return DriverError("cuDeviceGetCount", got);
  }
  described.set_driver_version(version);
  described.set_devices(static_cast<uint32_t>(devices));
  described.set_stand_in(nccl_->is_stand_in());
  return Send(event);
}

absl::Status Worker::MakeId() {
  CAIRN_RETURN_IF_ERROR(Open());
  nccl::UniqueId id;
  const nccl::Result made = nccl_->call().get_unique_id(&id);
  if (made != nccl::kSuccess) return NcclError("ncclGetUniqueId", made);
  worker::WorkerEvent event;
  event.mutable_made_id()->set_unique_id(id.internal, sizeof(id.internal));
  return Send(event);
}

absl::Status Worker::Join(const worker::Join& join) {
  if (comm_ != nullptr) return Refused("a worker joins one group");
  nccl::UniqueId id;
  if (join.ranks() == 0 || join.ranks() > kMostRanks || join.rank() >= join.ranks() ||
      join.unique_id().size() != sizeof(id.internal)) {
    return Refused("an invalid group");
  }
  CAIRN_RETURN_IF_ERROR(Open());
  std::memcpy(id.internal, join.unique_id().data(), sizeof(id.internal));
  const cuda::Functions& call = driver_->call();
  cuda::Device device = 0;
  if (const auto got = call.device_get(&device, static_cast<int>(join.device())); got != cuda::kSuccess) {
    return DriverError(absl::StrCat("cuDeviceGet of GPU ", join.device()), got);
  }
  if (const auto got = call.primary_context_retain(&context_, device); got != cuda::kSuccess) {
    return DriverError("cuDevicePrimaryCtxRetain", got);
  }
  if (const auto got = call.context_push(context_); got != cuda::kSuccess) return DriverError("cuCtxPushCurrent", got);
  if (const auto got = call.stream_create(&stream_, cuda::kStreamNonBlocking); got != cuda::kSuccess) {
    return DriverError("cuStreamCreate", got);
  }
  for (cuda::Event& event : events_) {
    const auto got = call.event_create(&event, cuda::kEventDisableTiming);
    if (got != cuda::kSuccess) return DriverError("cuEventCreate", got);
  }
  size_t total = 0;
  (void)call.memory_get_info(&free_before_, &total);
  nccl::Config config;
  config.blocking = 0;
  config.max_blocks = kMostBlocks;
  rank_ = join.rank();
  ranks_ = join.ranks();
  const nccl::Result begun =
      nccl_->call().comm_init(&comm_, static_cast<int>(join.ranks()), id, static_cast<int>(join.rank()), &config);
  if (begun != nccl::kSuccess && begun != nccl::kInProgress) return NcclError("ncclCommInitRankConfig", begun);
  joining_ = true;
  return absl::OkStatus();
}

absl::Status Worker::FinishJoin() {
  joining_ = false;
  size_t free_now = free_before_, total = 0;
  (void)driver_->call().memory_get_info(&free_now, &total);
  worker::WorkerEvent event;
  event.mutable_joined()->set_device_bytes(free_before_ > free_now ? free_before_ - free_now : 0);
  return Send(event);
}

absl::Status Worker::Map(const worker::Map& map, const UniqueFd& descriptor) {
  if (context_ == nullptr) return Refused("memory may only be mapped after a group was joined");
  if (memory_.contains(map.memory()) || memory_.size() >= kMostMemories)
    return Refused("memory that is known, or one too many");
  struct stat file = {};
  if (!descriptor.valid() || fstat(descriptor.get(), &file) != 0 || map.bytes() == 0 || file.st_size < 0 ||
      map.bytes() > static_cast<uint64_t>(file.st_size) ||
      map.offset() > static_cast<uint64_t>(file.st_size) - map.bytes()) {
    return Refused("memory without a descriptor, or larger than its file");
  }
  Memory memory;
  memory.bytes = map.bytes();
  memory.writable = map.writable();
  void* data = mmap(nullptr, memory.bytes, memory.writable ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED,
                    descriptor.get(), static_cast<off_t>(map.offset()));
  if (data == MAP_FAILED) {
    return MakeError(Reason::kMemoryLimit,
                     absl::StrCat("mapping ", memory.bytes, " bytes: ", std::generic_category().message(errno)));
  }
  memory.data = static_cast<char*>(data);
  if (const absl::Status registered = Register(memory); !registered.ok()) {
    Release(memory);
    return registered;
  }
  memory_[map.memory()] = memory;
  worker::WorkerEvent event;
  event.mutable_mapped()->set_memory(map.memory());
  return Send(event);
}

absl::Status Worker::Register(Memory& memory) {
  const unsigned flags = cuda::kMemHostRegisterPortable | (memory.writable ? 0 : cuda::kMemHostRegisterReadOnly);
  for (uint64_t at = 0; at < memory.bytes; at += kPiece) {
    const auto got = driver_->call().host_register(memory.data + at, std::min(kPiece, memory.bytes - at), flags);
    if (got != cuda::kSuccess) return DriverError("cuMemHostRegister", got);
  }
  return absl::OkStatus();
}

void Worker::Release(const Memory& memory) {
  for (uint64_t at = 0; at < memory.bytes; at += kPiece) (void)driver_->call().host_unregister(memory.data + at);
  munmap(memory.data, memory.bytes);
}

absl::Status Worker::Unmap(const worker::Unmap& unmap) {
  const auto found = memory_.find(unmap.memory());
  if (found == memory_.end()) return Refused("memory that is not known");
  Release(found->second);
  memory_.erase(found);
  worker::WorkerEvent event;
  event.mutable_unmapped()->set_memory(unmap.memory());
  return Send(event);
}

absl::Status Worker::ReadDevice(const worker::DeviceRequest& request, const UniqueFd& descriptor) {
  worker::WorkerEvent event;
  CAIRN_ASSIGN_OR_RETURN(*event.mutable_device(), reader_.Handle(request, descriptor));
  return Send(event);
}

absl::Status Worker::CheckStep(const worker::Step& step) const {
  if (comm_ == nullptr) return Refused("a step without a group");
  // A lost step would otherwise count as done with the next one.
  if (step.number() != last_step_ + 1) {
    return Refused(absl::StrCat("step ", step.number(), " came behind step ", last_step_));
  }
  for (const worker::Transfer& transfer : step.transfers()) {
    const auto found = memory_.find(transfer.memory());
    if (transfer.peer() >= ranks_ || found == memory_.end() || transfer.bytes() == 0 ||
        transfer.offset() > found->second.bytes || transfer.bytes() > found->second.bytes - transfer.offset() ||
        (!transfer.send() && !found->second.writable) ||
        (transfer.broadcast() && transfer.send() != (transfer.peer() == rank_))) {
      return Refused("a transfer outside of the group or of its memory");
    }
  }
  return absl::OkStatus();
}

absl::Status Worker::TakeStep(const worker::Step& step) {
  CAIRN_RETURN_IF_ERROR(CheckStep(step));
  if (steps_.size() + (next_step_.has_value() ? 1 : 0) == events_.size()) {
    return Refused("more than two steps at a time");
  }
  last_step_ = step.number();
  if (steps_.empty() || steps_.back().recorded) return StartStep(step);
  next_step_ = step;
  return absl::OkStatus();
}

absl::Status Worker::StartStep(const worker::Step& step) {
  // From now on the device may execute parts of the step.
  const bool first_is_free = steps_.empty() || steps_.front().event != events_[0];
  steps_.push_back({step.number(), events_[first_is_free ? 0 : 1]});
  const nccl::Functions& call = nccl_->call();
  const auto begun = [](nccl::Result result) { return result == nccl::kSuccess || result == nccl::kInProgress; };
  nccl::Result result = call.group_start();
  for (const worker::Transfer& transfer : step.transfers()) {
    if (!begun(result)) break;
    char* bytes = memory_[transfer.memory()].data + transfer.offset();
    const int peer = static_cast<int>(transfer.peer());
    if (transfer.broadcast()) {
      // In place, so that NCCL writes nothing on the sending rank.
      result = call.broadcast(bytes, bytes, transfer.bytes(), nccl::kUint8, peer, comm_, stream_);
      continue;
    }
    result = transfer.send() ? call.send(bytes, transfer.bytes(), nccl::kUint8, peer, comm_, stream_)
                             : call.receive(bytes, transfer.bytes(), nccl::kUint8, peer, comm_, stream_);
  }
  const nccl::Result ended = call.group_end();
  if (begun(result)) result = ended;
  return begun(result) ? absl::OkStatus() : NcclError("ncclGroupEnd", result);
}

absl::Status Worker::Look() {
  nccl::Result state = nccl::kSuccess;
  const nccl::Result asked = nccl_->call().comm_get_async_error(comm_, &state);
  if (asked != nccl::kSuccess) return NcclError("ncclCommGetAsyncError", asked);
  if (state == nccl::kInProgress) return absl::OkStatus();
  if (state != nccl::kSuccess) return NcclError(joining_ ? "ncclCommInitRankConfig" : "ncclCommGetAsyncError", state);
  if (joining_) return FinishJoin();
  // NCCL has now put the whole work of the last step into the stream.
  if (RunningStep& last = steps_.back(); !std::exchange(last.recorded, true)) {
    const auto recorded = driver_->call().event_record(last.event, stream_);
    if (recorded != cuda::kSuccess) return DriverError("cuEventRecord", recorded);
    if (next_step_.has_value()) CAIRN_RETURN_IF_ERROR(StartStep(*std::exchange(next_step_, std::nullopt)));
  }
  return FinishStep();
}

absl::Status Worker::FinishStep() {
  const RunningStep first = steps_.front();
  if (!first.recorded) return absl::OkStatus();
  const cuda::Result reached = driver_->call().event_query(first.event);
  if (reached == cuda::kNotReady) return absl::OkStatus();
  if (reached != cuda::kSuccess) return DriverError("cuEventQuery", reached);
  steps_.pop_front();
  pace_.Finished();
  worker::WorkerEvent event;
  event.mutable_step_done()->set_number(first.number);
  return Send(event);
}

}  // namespace cairn

#include "agent/execution/device_keeper.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/process/log.h"
#include "common/status/reason.h"
#include "common/status/status.h"

namespace cairn {
namespace {

// A request that copies nothing may take so long. The first request opens the driver and makes its context, which takes
// seconds on large machines.
constexpr absl::Duration kTimeout = absl::Seconds(30);
// They fit one packet.
constexpr size_t kPartsInRequest = 1000;
constexpr size_t kBlocksInRequest = 4000;

absl::Duration Left(absl::Time deadline) {
  return std::max(deadline - Clock::Real().SteadyNow(), absl::ZeroDuration());
}

// Returns whether the worker only refused the request, and goes on.
bool IsRefusal(const absl::Status& status) { return HasReason(status, Reason::kDeviceError); }

}  // namespace

void DeviceKeeper::Take(uint64_t offer, std::vector<DeviceBlock> blocks, std::vector<UniqueFd> descriptors) {
  auto given = std::make_shared<std::vector<UniqueFd>>(std::move(descriptors));
  queue_.Post([this, offer, blocks = std::move(blocks), given] {
    const absl::Status taken = TakeNow(blocks, *given);
    given->clear();
    if (!taken.ok()) {
      Log(LogLevel::kWarn, "device_memory_refused", {{"error", taken}});
      EndNow("refused");
    }
    options_.on_taken(offer, taken);
  });
}

absl::StatusOr<std::shared_ptr<WorkerProcess>> DeviceKeeper::Worker() {
  {
    MutexLock lock(mutex_);
    if (stopped_) return MakeError(Reason::kDeviceError, "the agent ends");
    if (worker_ != nullptr) return worker_;
  }
  CAIRN_ASSIGN_OR_RETURN(std::shared_ptr<WorkerProcess> worker, WorkerProcess::Start(options_.worker));
  Log(LogLevel::kInfo, "gpu_worker_started", {{"for", "device memory"}, {"pid", worker->pid()}});
  MutexLock lock(mutex_);
  worker_ = worker;
  return worker;
}

std::shared_ptr<WorkerProcess> DeviceKeeper::Living(absl::Duration timeout) {
  std::shared_ptr<WorkerProcess> worker;
  {
    MutexLock lock(mutex_);
    worker = worker_;
  }
  // It may have ended since it was asked last, and then nobody has lost more than the blocks.
  if (worker == nullptr || DropNow(*worker, {}, timeout).ok()) return worker;
  EndNow("not there any more");
  return nullptr;
}

absl::Status DeviceKeeper::Import(WorkerProcess& worker, const DeviceBlock& block, int descriptor,
                                  absl::Duration timeout) {
  worker::DeviceRequest request;
  worker::ImportBlock& import = *request.mutable_import_block();
  import.set_block(block.id);
  import.set_bytes(block.bytes);
  import.set_ipc_handle(block.ipc_handle);
  import.set_device_uuid(block.device_uuid);
  import.set_fabric(block.fabric);
  return worker.ReadDevice(request, descriptor, timeout).status();
}

absl::Status DeviceKeeper::TakeNow(const std::vector<DeviceBlock>& blocks, const std::vector<UniqueFd>& descriptors) {
  if (blocks.size() != descriptors.size()) return MakeError(Reason::kInternal, "blocks without descriptors");
  Living(kTimeout);  // blocks that go with one that has ended are lost, and the next copy says so
  CAIRN_ASSIGN_OR_RETURN(const std::shared_ptr<WorkerProcess> worker, Worker());
  for (size_t i = 0; i < blocks.size(); ++i) {
    CAIRN_RETURN_IF_ERROR(Import(*worker, blocks[i], descriptors[i].get(), kTimeout));
    held_[blocks[i].id] = blocks[i].bytes;
  }
  Log(LogLevel::kInfo, "device_memory_taken", {{"blocks", blocks.size()}, {"held_bytes", HeldBytes()}});
  return absl::OkStatus();
}

absl::Status DeviceKeeper::DropNow(WorkerProcess& worker, const std::vector<uint64_t>& blocks, absl::Duration timeout) {
  for (size_t at = 0; at == 0 || at < blocks.size(); at += kBlocksInRequest) {
    worker::DeviceRequest request;
    worker::DropBlocks& drop = *request.mutable_drop_blocks();
    for (size_t i = at; i < std::min(at + kBlocksInRequest, blocks.size()); ++i) drop.add_blocks(blocks[i]);
    CAIRN_RETURN_IF_ERROR(worker.ReadDevice(request, -1, timeout).status());
  }
  return absl::OkStatus();
}

void DeviceKeeper::Drop(std::vector<uint64_t> blocks) {
  queue_.Post([this, blocks = std::move(blocks)] {
    std::shared_ptr<WorkerProcess> worker;
    {
      MutexLock lock(mutex_);
      worker = worker_;
    }
    if (worker == nullptr) return;
    if (const absl::Status dropped = DropNow(*worker, blocks, kTimeout); !dropped.ok()) {
      Log(LogLevel::kWarn, "gpu_worker_failed", {{"error", dropped}});
      EndNow("failed");  // the next copy tells the trainer that its blocks are lost
    } else {
      for (const uint64_t block : blocks) held_.erase(block);
      Log(LogLevel::kInfo, "device_memory_dropped", {{"blocks", blocks.size()}, {"held_bytes", HeldBytes()}});
    }
  });
}

uint64_t DeviceKeeper::HeldBytes() const {
  uint64_t bytes = 0;
  for (const auto& [block, size] : held_) bytes += size;
  return bytes;
}

bool DeviceKeeper::IsStopped(uint64_t copy) {
  MutexLock lock(mutex_);
  return copy <= stopped_copy_;
}

void DeviceKeeper::Copy(Order order) {
  {
    MutexLock lock(mutex_);
    running_copy_ = order.copy;
  }
  queue_.Post([this, order = std::move(order)] {
    const absl::Time begin = Clock::Real().SteadyNow();
    absl::StatusOr<DeviceCopied> copied = CopyNow(order);
    if (!copied.ok()) {
      Log(LogLevel::kWarn, "device_copy_failed", {{"error", copied.status()}});
      EndNow("failed");  // now nothing of it copies any more
    } else {
      uint64_t bytes = 0;
      for (const DeviceMemoryPart& part : *order.parts) bytes += part.bytes;
      Log(LogLevel::kInfo, "device_copied",
          {{"bytes", copied->kind == DeviceCopied::Kind::kDone ? bytes : 0},
           {"parts", order.parts->size()},
           {"seconds", absl::ToDoubleSeconds(Clock::Real().SteadyNow() - begin)},
           {"refused", copied->why},
           {"lost", copied->kind == DeviceCopied::Kind::kLost},
           {"unchecked", copied->unchecked},
           {"unpinned", copied->unpinned}});
    }
    options_.on_copied(order.copy, std::move(copied));
  });
}

absl::StatusOr<DeviceCopied> DeviceKeeper::CopyNow(const Order& order) {
  std::set<uint64_t> opened;
  for (const DeviceBlock& block : order.ipc) opened.insert(block.id);
  std::shared_ptr<WorkerProcess> worker = Living(std::min(kTimeout, Left(order.deadline)));
  if (IsStopped(order.copy)) return MakeError(Reason::kDeviceError, "the save has ended before its copies began");
  // A worker that was started since may have later blocks alone.
  const bool lost = std::any_of(order.parts->begin(), order.parts->end(), [&](const DeviceMemoryPart& part) {
    return !opened.contains(part.block) && !held_.contains(part.block);
  });
  if (lost) {
    EndNow("its blocks are offered anew");
    return DeviceCopied{.kind = DeviceCopied::Kind::kLost};
  }
  const auto started = Worker();
  if (!started.ok()) {
    return DeviceCopied{.kind = DeviceCopied::Kind::kRefused, .why = std::string(started.status().message())};
  }
  worker = *started;
  DeviceCopied copied;
  const auto annotated = [&](const absl::Status& failed) {
    if (IsStopped(order.copy)) return MakeError(Reason::kDeviceError, "the save has ended before its copies");
    if (!HasReason(failed, Reason::kTimedOut)) return MakeError(Reason::kDeviceError, std::string(failed.message()));
    return MakeError(Reason::kDeviceStalled, "cairn-gpu-worker has not copied from the GPU within the save's timeout");
  };
  const auto refused = Prepare(*worker, order, copied);
  if (!refused.ok()) return annotated(refused.status());
  if (!refused->empty()) return DeviceCopied{.kind = DeviceCopied::Kind::kRefused, .why = *refused};
  if (const absl::Status done = CopyParts(*worker, order, copied); !done.ok()) return annotated(done);
  std::vector<uint64_t> close(opened.begin(), opened.end());
  if (const absl::Status closed = DropNow(*worker, close, Left(order.deadline)); !closed.ok()) return annotated(closed);
  return copied;
}

absl::StatusOr<std::string> DeviceKeeper::Prepare(WorkerProcess& worker, const Order& order, DeviceCopied& copied) {
  std::vector<uint64_t> imported;
  const auto give_back = [&](absl::Status why) -> absl::StatusOr<std::string> {
    if (!IsRefusal(why)) return why;
    CAIRN_RETURN_IF_ERROR(DropNow(worker, imported, Left(order.deadline)));
    return std::string(why.message());
  };
  for (const DeviceBlock& block : order.ipc) {
    const absl::Status opened = Import(worker, block, -1, std::min(kTimeout, Left(order.deadline)));
    if (!opened.ok()) return give_back(opened);
    imported.push_back(block.id);
  }
  if (mapped_slab_ != order.slab_id) {
    mapped_slab_.reset();
    worker::DeviceRequest request;
    request.mutable_map_slab()->set_bytes(order.slab->bytes());
    const auto mapped = worker.ReadDevice(request, order.slab->fd(), Left(order.deadline));
    if (!mapped.ok()) return give_back(mapped.status());
    mapped_slab_ = order.slab_id;
    unpinned_ = mapped->slab_mapped().unpinned();
  }
  copied.unpinned = unpinned_;
  return "";
}

absl::Status DeviceKeeper::CopyParts(WorkerProcess& worker, const Order& order, DeviceCopied& copied) {
  const std::vector<DeviceMemoryPart>& parts = *order.parts;
  for (size_t at = 0; at < parts.size(); at += kPartsInRequest) {
    const size_t end = std::min(at + kPartsInRequest, parts.size());
    worker::DeviceRequest request;
    for (size_t i = at; i < end; ++i) {
      worker::CopiedPart& part = *request.mutable_copy_to_slab()->add_parts();
      part.set_block(parts[i].block);
      part.set_offset(parts[i].offset);
      part.set_slab_offset(parts[i].slab_offset);
      part.set_bytes(parts[i].bytes);
    }
    CAIRN_ASSIGN_OR_RETURN(const worker::DeviceEvent event, worker.ReadDevice(request, -1, Left(order.deadline)));
    const auto& checksums = event.copied().checksums();
    if (!event.copied().unchecked().empty()) copied.unchecked = event.copied().unchecked();
    if (static_cast<size_t>(checksums.size()) == end - at) {
      copied.checksums.insert(copied.checksums.end(), checksums.begin(), checksums.end());
    } else if (event.copied().unchecked().empty()) {
      return MakeError(Reason::kTransportFailed, "cairn-gpu-worker has answered something else than it was asked");
    }
  }
  if (!copied.unchecked.empty()) copied.checksums.clear();
  return absl::OkStatus();
}

void DeviceKeeper::StopCopy(uint64_t copy) {
  MutexLock lock(mutex_);
  stopped_copy_ = std::max(stopped_copy_, copy);
  if (running_copy_ == copy && worker_ != nullptr) worker_->Cancel();
}

void DeviceKeeper::LetGoOfSlab() {
  queue_.Post([this] {
    std::shared_ptr<WorkerProcess> worker;
    {
      MutexLock lock(mutex_);
      worker = worker_;
    }
    if (worker == nullptr || !mapped_slab_.has_value()) return;
    mapped_slab_.reset();
    worker::DeviceRequest request;
    request.mutable_map_slab();
    if (!worker->ReadDevice(request, -1, kTimeout).ok()) EndNow("failed");
  });
}

void DeviceKeeper::End() {
  {
    MutexLock lock(mutex_);
    stopped_copy_ = std::max(stopped_copy_, running_copy_);
    if (worker_ != nullptr) worker_->Cancel();  // what the queue waits for is of no use to anybody
  }
  queue_.Post([this] { EndNow("given back"); });
}

void DeviceKeeper::EndNow(const char* why) {
  std::shared_ptr<WorkerProcess> ended;
  {
    MutexLock lock(mutex_);
    ended = std::move(worker_);
    worker_ = nullptr;
  }
  mapped_slab_.reset();
  held_.clear();
  if (ended == nullptr) return;
  ended->End();
  Log(LogLevel::kInfo, "gpu_worker_ended", {{"for", "device memory"}, {"pid", ended->pid()}, {"why", why}});
}

void DeviceKeeper::Stop() {
  {
    MutexLock lock(mutex_);
    if (std::exchange(stopped_, true)) return;
    if (worker_ != nullptr) worker_->Cancel();
  }
  queue_.Stop();
  EndNow("the agent ends");
}

}  // namespace cairn

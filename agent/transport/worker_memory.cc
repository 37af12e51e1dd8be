#include "agent/transport/worker_memory.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/file/unique_fd.h"
#include "common/status/reason.h"
#include "common/status/status.h"

namespace cairn {
namespace {

// Registering memory takes about 0.1 s for each GB.
constexpr absl::Duration kMapTimePerGb = absl::Seconds(1);

}  // namespace

absl::Duration WorkerMemory::PatienceFor(uint64_t bytes) const {
  return grace_ + kMapTimePerGb * (static_cast<double>(bytes) / 1e9);
}

absl::StatusOr<uint64_t> WorkerMemory::Map(const std::shared_ptr<SharedMemory>& memory, bool writable) {
  const auto known =
      std::find_if(mapped_.begin(), mapped_.end(), [&](const Mapped& each) { return each.memory == memory; });
  if (known != mapped_.end()) return static_cast<uint64_t>(known - mapped_.begin()) + 1;
  worker::Map map;
  map.set_bytes(memory->bytes());
  map.set_writable(writable);
  return Map(memory, std::move(map), memory->fd());
}

absl::StatusOr<uint64_t> WorkerMemory::MapPart(const std::shared_ptr<SharedMemory>& memory, uint64_t offset,
                                               uint64_t bytes) {
  CAIRN_ASSIGN_OR_RETURN(const UniqueFd descriptor, memory->OpenReadOnly());
  worker::Map map;
  map.set_offset(offset);
  map.set_bytes(bytes);
  return Map(memory, std::move(map), descriptor.get());
}

absl::StatusOr<uint64_t> WorkerMemory::Map(std::shared_ptr<SharedMemory> memory, worker::Map map, int descriptor) {
  const uint64_t number = mapped_.size() + 1;
  map.set_memory(number);
  const absl::Status mapped = group_->worker->Map(map, descriptor, PatienceFor(map.bytes()));
  if (!mapped.ok()) {
    // The worker maps by itself, so no other rank is at fault.
    return MakeError(Reason::kTransportFailed, absl::StrCat("an exchange over NCCL: ", mapped.message()),
                     {{std::string(kWorkerAtFault), "yes"}});
  }
  mapped_.push_back({std::move(memory), map.bytes()});
  bytes_ += map.bytes();
  return number;
}

absl::Status WorkerMemory::UnmapAll() {
  for (; !mapped_.empty(); mapped_.pop_back()) {
    CAIRN_RETURN_IF_ERROR(group_->worker->Unmap(mapped_.size(), PatienceFor(mapped_.back().bytes)));
    bytes_ -= mapped_.back().bytes;
  }
  return absl::OkStatus();
}

}  // namespace cairn

#include "agent/transport/nccl/worker_memory.h"

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

WorkerMemory::Lent WorkerMemory::Find(const SharedMemory* memory) {
  return std::find_if(mapped_.begin(), mapped_.end(), [&](const Mapped& each) { return each.memory.get() == memory; });
}

absl::StatusOr<uint64_t> WorkerMemory::Map(const std::shared_ptr<SharedMemory>& memory, bool writable) {
  if (const Lent known = Find(memory.get()); known != mapped_.end()) return known->number;
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
  const uint64_t number = ++group_->memories;
  map.set_memory(number);
  const absl::Status mapped = group_->worker->Map(map, descriptor, PatienceFor(map.bytes()));
  if (!mapped.ok()) {
    // The worker maps by itself, so no other rank is at fault.
    return MakeError(Reason::kTransportFailed, absl::StrCat("an exchange over NCCL: ", mapped.message()),
                     {{std::string(kWorkerAtFault), "yes"}});
  }
  mapped_.push_back({std::move(memory), map.bytes(), number});
  bytes_ += map.bytes();
  return number;
}

absl::Status WorkerMemory::Unmap(const SharedMemory* memory) {
  const Lent lent = Find(memory);
  return lent == mapped_.end() ? absl::OkStatus() : Unmap(lent);
}

absl::Status WorkerMemory::Unmap(Lent lent) {
  CAIRN_RETURN_IF_ERROR(group_->worker->Unmap(lent->number, PatienceFor(lent->bytes)));
  bytes_ -= lent->bytes;
  mapped_.erase(lent);
  return absl::OkStatus();
}

absl::Status WorkerMemory::UnmapAll() {
  while (!mapped_.empty()) CAIRN_RETURN_IF_ERROR(Unmap(mapped_.end() - 1));
  return absl::OkStatus();
}

}  // namespace cairn

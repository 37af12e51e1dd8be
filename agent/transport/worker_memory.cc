#include "agent/transport/worker_memory.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
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
  const auto known = std::find(mapped_.begin(), mapped_.end(), memory);
  if (known != mapped_.end()) return static_cast<uint64_t>(known - mapped_.begin()) + 1;
  const uint64_t number = mapped_.size() + 1;
  const absl::Status mapped =
      group_->worker->Map(number, memory->bytes(), writable, memory->fd(), PatienceFor(memory->bytes()));
  if (!mapped.ok()) {
    return MakeError(Reason::kTransportFailed, absl::StrCat("an exchange over NCCL: ", mapped.message()));
  }
  mapped_.push_back(memory);
  bytes_ += memory->bytes();
  return number;
}

absl::Status WorkerMemory::UnmapAll() {
  for (; !mapped_.empty(); mapped_.pop_back()) {
    CAIRN_RETURN_IF_ERROR(group_->worker->Unmap(mapped_.size(), PatienceFor(mapped_.back()->bytes())));
    bytes_ -= mapped_.back()->bytes();
  }
  return absl::OkStatus();
}

}  // namespace cairn

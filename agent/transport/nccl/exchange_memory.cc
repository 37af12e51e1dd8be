#include "agent/transport/nccl/exchange_memory.h"

#include <algorithm>

#include "common/status/status.h"

namespace cairn {

ExchangeMemory::~ExchangeMemory() {
  for (const Window& window : received_) {
    if (window.id != 0) offers_.withdraw(window.id);
  }
}

bool ExchangeMemory::HaveRoom(const Windows& windows, uint64_t bytes) {
  return std::all_of(windows.begin(), windows.end(),
                     [&](const Window& window) { return window.number != 0 && window.memory->bytes() >= bytes; });
}

absl::Status ExchangeMemory::Drop(Windows& windows) {
  for (Window& window : windows) {
    if (window.id != 0) offers_.withdraw(window.id);
    window.id = 0;
    CAIRN_RETURN_IF_ERROR(worker_.Unmap(window.memory.get()));
    window = Window();
  }
  return absl::OkStatus();
}

absl::Status ExchangeMemory::MakeReceived(uint64_t bytes) {
  if (HaveRoom(received_, bytes)) return absl::OkStatus();
  CAIRN_RETURN_IF_ERROR(Drop(received_));
  for (Window& window : received_) {
    CAIRN_ASSIGN_OR_RETURN(window.memory, pool_.Make("cairn-exchange", bytes, room_));
    // The worker maps it before it is offered: from then on nobody can map it writable.
    CAIRN_ASSIGN_OR_RETURN(window.number, worker_.Map(window.memory, true));
    CAIRN_ASSIGN_OR_RETURN(window.id, offers_.offer(window.memory));
  }
  return absl::OkStatus();
}

absl::Status ExchangeMemory::MakePacked(uint64_t bytes) {
  if (bytes == 0 || HaveRoom(packed_, bytes)) return absl::OkStatus();
  CAIRN_RETURN_IF_ERROR(Drop(packed_));
  for (Window& window : packed_) {
    CAIRN_ASSIGN_OR_RETURN(window.memory, pool_.Make("cairn-packed", bytes, room_));
    CAIRN_ASSIGN_OR_RETURN(window.number, worker_.Map(window.memory, false));
  }
  return absl::OkStatus();
}

}  // namespace cairn

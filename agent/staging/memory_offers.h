// How memory of this process is offered to others, which map it by an id.
#ifndef CAIRN_AGENT_STAGING_MEMORY_OFFERS_H_
#define CAIRN_AGENT_STAGING_MEMORY_OFFERS_H_

#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "agent/staging/shared_memory.h"
#include "common/file/unique_fd.h"

namespace cairn {

// All functions are set, and may be called from any thread.
struct MemoryOffers {
  // Offers memory that others may only read, and returns its id. Fails as SharedMemory::OpenReadOnly.
  std::function<absl::StatusOr<uint64_t>(std::shared_ptr<SharedMemory>)> offer;
  // Offers a descriptor as it is, and returns its id.
  std::function<uint64_t(UniqueFd)> offer_descriptor;
  // Ends the offer of an id. Processes that have the memory mapped keep it.
  std::function<void(uint64_t)> withdraw;
};

}  // namespace cairn

#endif  // CAIRN_AGENT_STAGING_MEMORY_OFFERS_H_

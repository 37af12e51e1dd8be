// Memory of another agent that this agent reads. Before it maps the memory, it checks the seals, so that nobody can
// change the memory later (after its checksums were compared) or truncate it (which would end the reader by SIGBUS).
#ifndef CAIRN_AGENT_SOCKETS_LENT_MEMORY_H_
#define CAIRN_AGENT_SOCKETS_LENT_MEMORY_H_

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace cairn {

// The memory is mapped read-only while the object exists. Thread-safe.
class LentMemory {
 public:
  // Maps the first `bytes` of the memory that an agent offers under `id` at its descriptor socket `path`. That agent
  // must run as the user `owner`. UNAVAILABLE (AGENT_UNREACHABLE), PERMISSION_DENIED (PEER_UID): as ReceiveDescriptor.
  // FAILED_PRECONDITION (MEMORY_UNSEALED): the seals are missing. UNAVAILABLE (TRANSPORT_FAILED): the memory has fewer
  // bytes. RESOURCE_EXHAUSTED (MEMORY_LIMIT): the system refused to map it.
  static absl::StatusOr<std::shared_ptr<LentMemory>> Map(const std::string& path, uint64_t id, uint64_t bytes,
                                                         uid_t owner);
  ~LentMemory();
  LentMemory(const LentMemory&) = delete;
  LentMemory& operator=(const LentMemory&) = delete;

  const char* data() const { return data_; }
  uint64_t bytes() const { return bytes_; }

 private:
  LentMemory(const char* data, uint64_t bytes) : data_(data), bytes_(bytes) {}

  const char* const data_;
  const uint64_t bytes_;
};

}  // namespace cairn

#endif  // CAIRN_AGENT_SOCKETS_LENT_MEMORY_H_

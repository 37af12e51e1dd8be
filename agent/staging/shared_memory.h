// Memory that is handed to another process by descriptor: slabs, read buffers, the control page. A memfd, so that
// nothing is left after a crash and the 64 MB of a container's /dev/shm do not matter.
#ifndef CAIRN_AGENT_STAGING_SHARED_MEMORY_H_
#define CAIRN_AGENT_STAGING_SHARED_MEMORY_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/file/unique_fd.h"

namespace cairn {

// Memory that is mapped readable and writable for as long as this lives. Its size is sealed, so that no holder of the
// descriptor can cut it off under another. Only its owner's processes can open it anew. Thread-safe but for the bytes
// themselves.
class SharedMemory {
 public:
  // FAILED_PRECONDITION (MEMORY_UNSEALED): this kernel cannot keep readers from writing. To be asked once, at the
  // start.
  static absl::Status CheckSealing();

  // Makes memory of `bytes` > 0, rounded up to whole pages. It is all zero, and no page is there yet: see Populate.
  // RESOURCE_EXHAUSTED (MEMORY_LIMIT): the kernel refused.
  static absl::StatusOr<std::shared_ptr<SharedMemory>> Create(const std::string& name, uint64_t bytes);
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  // Makes all pages from `threads` threads, so that no later write has to wait for one (and so that they count against
  // this process's container). Check the limits before: a container that exceeds its own is killed.
  // RESOURCE_EXHAUSTED (MEMORY_LIMIT).
  absl::Status Populate(int threads);

  // A descriptor to read through. The memory is sealed with the first one: from now on nobody maps it writable or
  // writes to it through a descriptor, however it was come by (/proc/PID/fd too); whoever has it mapped writable keeps
  // that. Its pages cannot be given back singly any more: they go with the last mapping and descriptor.
  // FAILED_PRECONDITION (MEMORY_UNSEALED), UNAVAILABLE (STORAGE_ERROR): the process has no descriptor left.
  absl::StatusOr<UniqueFd> OpenReadOnly() const;
  bool sealed() const;

  char* data() const { return data_; }
  uint64_t bytes() const { return bytes_; }
  int fd() const { return fd_.get(); }

 private:
  SharedMemory(UniqueFd fd, char* data, uint64_t bytes) : fd_(std::move(fd)), data_(data), bytes_(bytes) {}

  const UniqueFd fd_;
  char* const data_;
  const uint64_t bytes_;
};

}  // namespace cairn

#endif  // CAIRN_AGENT_STAGING_SHARED_MEMORY_H_

// Memory that is handed to another process by descriptor: slabs, read buffers, the control page. A memfd, so that
// nothing is left after a crash and the 64 MB of a container's /dev/shm do not matter.
#ifndef CAIRN_AGENT_STAGING_SHARED_MEMORY_H_
#define CAIRN_AGENT_STAGING_SHARED_MEMORY_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/storage/unique_fd.h"

namespace cairn {

// Mapped readable and writable for as long as it lives. Its size is sealed, so that no holder of the descriptor can
// cut it off under another. Thread-safe but for the bytes themselves.
class SharedMemory {
 public:
  // `bytes` > 0, rounded up to whole pages. All zero. No page is there yet: see Populate.
  // RESOURCE_EXHAUSTED (MEMORY_LIMIT): the kernel refused.
  static absl::StatusOr<std::shared_ptr<SharedMemory>> Create(const std::string& name, uint64_t bytes);
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  // Makes all pages from `threads` threads, so that no later write has to wait for one (and so that they count against
  // this process's container). Check the limits before: a container that exceeds its own is killed.
  // RESOURCE_EXHAUSTED (MEMORY_LIMIT).
  absl::Status Populate(int threads);

  // A descriptor through which the memory can be read but neither written nor mapped writable.
  absl::StatusOr<UniqueFd> OpenReadOnly() const;

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

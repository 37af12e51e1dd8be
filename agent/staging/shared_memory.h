// Memory that is shared with another process by its descriptor: slabs, read buffers, the control page. It is a memfd,
// so nothing is left over after a crash, and the limit of a container's /dev/shm (64 MB) does not apply.
#ifndef CAIRN_AGENT_STAGING_SHARED_MEMORY_H_
#define CAIRN_AGENT_STAGING_SHARED_MEMORY_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/file/unique_fd.h"

namespace cairn {

// The memory is mapped readable and writable while the object exists. Its size is sealed, so no holder of the
// descriptor can truncate it. Only processes of this user can open it again through /proc. Thread-safe, except for the
// bytes.
class SharedMemory {
 public:
  // FAILED_PRECONDITION (MEMORY_UNSEALED): the kernel cannot make memory read-only for its receivers. Call it at the
  // start.
  static absl::Status CheckSealing();

  enum class Pages {
    kOrdinary,  // huge ones too, where the kernel gives them by itself
    kSetAside,  // huge ones that an administrator has set aside (HugeTLB): no memory limit counts them
  };

  // Rounds up to whole pages of this kind. `bytes` must be at least a page below 2^64.
  static uint64_t WholePages(uint64_t bytes, Pages pages);
  // Makes memory of `bytes` > 0, rounded up to whole pages. It is zero, and no page is allocated yet: see Populate.
  // RESOURCE_EXHAUSTED (MEMORY_LIMIT): the kernel refused; of kSetAside, fewer are free. UNAVAILABLE (STORAGE_ERROR):
  // the process has no descriptor left.
  static absl::StatusOr<std::shared_ptr<SharedMemory>> Create(const std::string& name, uint64_t bytes,
                                                              Pages pages = Pages::kOrdinary);
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  // Allocates all pages with `threads` threads, so that no later write waits for a page, and so that the pages count
  // against this process's container. Check the limits first, because a container that exceeds its limit is killed.
  // RESOURCE_EXHAUSTED (MEMORY_LIMIT): the kernel refused.
  absl::Status Populate(int threads);

  // Returns a read-only descriptor. The first call seals the memory: from then on no process can map it writable or
  // write to it through any descriptor (also not through /proc/PID/fd). Existing writable mappings stay. Single pages
  // cannot be freed any more; the memory is freed with its last mapping and descriptor. FAILED_PRECONDITION
  // (MEMORY_UNSEALED): the kernel does not support this seal. UNAVAILABLE (STORAGE_ERROR): the process has no
  // descriptor left.
  absl::StatusOr<UniqueFd> OpenReadOnly() const;
  bool sealed() const;

  char* data() const { return data_; }
  uint64_t bytes() const { return bytes_; }
  Pages pages() const { return pages_; }
  // Says for people whether it may have huge pages: "set_aside", "by_kernel" (where it has some) or "no".
  const char* huge_pages() const;
  int fd() const { return fd_.get(); }

 private:
  SharedMemory(UniqueFd fd, char* data, uint64_t bytes, Pages pages)
      : fd_(std::move(fd)), data_(data), bytes_(bytes), pages_(pages) {}

  const UniqueFd fd_;
  char* const data_;
  const uint64_t bytes_;
  const Pages pages_;
};

}  // namespace cairn

#endif  // CAIRN_AGENT_STAGING_SHARED_MEMORY_H_

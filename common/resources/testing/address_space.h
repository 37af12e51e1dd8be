// Lets a process run out of memory for a moment, as under ulimit -v.
#ifndef CAIRN_COMMON_RESOURCES_TESTING_ADDRESS_SPACE_H_
#define CAIRN_COMMON_RESOURCES_TESTING_ADDRESS_SPACE_H_

#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <fstream>

#include "absl/base/config.h"

namespace cairn {

// While the object exists, this process can map only `more` bytes in addition to its present mappings.
class LimitedAddressSpace {
 public:
  explicit LimitedAddressSpace(uint64_t more) {
    getrlimit(RLIMIT_AS, &before_);
    uint64_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    rlimit limited = before_;
    limited.rlim_cur = pages * static_cast<uint64_t>(sysconf(_SC_PAGESIZE)) + more;
    setrlimit(RLIMIT_AS, &limited);
  }
  ~LimitedAddressSpace() { setrlimit(RLIMIT_AS, &before_); }
  LimitedAddressSpace(const LimitedAddressSpace&) = delete;
  LimitedAddressSpace& operator=(const LimitedAddressSpace&) = delete;

  // Returns false under a sanitizer, whose own memory cannot be limited in this way, and for arm64 under qemu, which
  // does not obey the limit.
  static bool Works() {
#if defined(ABSL_HAVE_ADDRESS_SANITIZER) || defined(ABSL_HAVE_THREAD_SANITIZER)
    return false;
#elif defined(__aarch64__)
    constexpr size_t kMuch = size_t{64} << 20;
    const LimitedAddressSpace little(kMuch / 2);
    void* const memory = mmap(nullptr, kMuch, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory != MAP_FAILED) munmap(memory, kMuch);
    return memory == MAP_FAILED;
#else
    return true;
#endif
  }

 private:
  rlimit before_ = {};
};

}  // namespace cairn

#endif  // CAIRN_COMMON_RESOURCES_TESTING_ADDRESS_SPACE_H_

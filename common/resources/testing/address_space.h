// Lets a process run out of memory for a moment, as under ulimit -v.
#ifndef CAIRN_COMMON_RESOURCES_TESTING_ADDRESS_SPACE_H_
#define CAIRN_COMMON_RESOURCES_TESTING_ADDRESS_SPACE_H_

#include <sys/resource.h>
#include <unistd.h>

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

  // Returns false under a sanitizer, whose own memory cannot be limited in this way.
  static constexpr bool Works() {
#if defined(ABSL_HAVE_ADDRESS_SANITIZER) || defined(ABSL_HAVE_THREAD_SANITIZER)
    return false;
#else
    return true;
#endif
  }

 private:
  rlimit before_ = {};
};

}  // namespace cairn

#endif  // CAIRN_COMMON_RESOURCES_TESTING_ADDRESS_SPACE_H_

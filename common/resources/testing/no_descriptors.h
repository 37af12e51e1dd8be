// Leaves this process without a free file descriptor.
#ifndef CAIRN_COMMON_RESOURCES_TESTING_NO_DESCRIPTORS_H_
#define CAIRN_COMMON_RESOURCES_TESTING_NO_DESCRIPTORS_H_

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

namespace cairn {

// While the object exists, the process cannot open another descriptor. Open descriptors stay, also those above the
// limit. No other thread may close a descriptor meanwhile.
class NoDescriptors {
 public:
  NoDescriptors() {
    getrlimit(RLIMIT_NOFILE, &before_);
    const int lowest_free = open("/dev/null", O_RDONLY | O_CLOEXEC);
    close(lowest_free);
    rlimit none = before_;
    none.rlim_cur = static_cast<rlim_t>(lowest_free);
    setrlimit(RLIMIT_NOFILE, &none);
  }
  ~NoDescriptors() { setrlimit(RLIMIT_NOFILE, &before_); }
  NoDescriptors(const NoDescriptors&) = delete;
  NoDescriptors& operator=(const NoDescriptors&) = delete;

 private:
  rlimit before_ = {};
};

}  // namespace cairn

#endif  // CAIRN_COMMON_RESOURCES_TESTING_NO_DESCRIPTORS_H_

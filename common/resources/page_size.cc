#include "common/resources/page_size.h"

#include <unistd.h>

namespace cairn {

std::atomic<uint64_t> internal::other_page_bytes = 0;

uint64_t PageBytes() {
  static const auto bytes = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  const uint64_t other = internal::other_page_bytes;
  return other != 0 ? other : bytes;
}

}  // namespace cairn

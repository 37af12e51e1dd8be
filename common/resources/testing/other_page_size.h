// Lets a test see what the code does on a system with larger pages.
#ifndef CAIRN_COMMON_RESOURCES_TESTING_OTHER_PAGE_SIZE_H_
#define CAIRN_COMMON_RESOURCES_TESTING_OTHER_PAGE_SIZE_H_

#include <cstdint>

#include "common/resources/page_size.h"

namespace cairn::testing {

// While it exists, PageBytes() returns `bytes`: a multiple of the system's page, so that what is whole pages of the one
// is whole pages of the other. One at a time.
class OtherPageSize {
 public:
  explicit OtherPageSize(uint64_t bytes) { internal::other_page_bytes = bytes; }
  ~OtherPageSize() { internal::other_page_bytes = 0; }
  OtherPageSize(const OtherPageSize&) = delete;
  OtherPageSize& operator=(const OtherPageSize&) = delete;
};

}  // namespace cairn::testing

#endif  // CAIRN_COMMON_RESOURCES_TESTING_OTHER_PAGE_SIZE_H_

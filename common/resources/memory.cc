#include "common/resources/memory.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/status/reason.h"

namespace cairn {

absl::Status NoMemory(std::string_view what) {
  return MakeError(Reason::kMemoryLimit,
                   absl::StrCat("the system refused memory or a thread ", std::string(what),
                                " (ulimit -v and -u, memory.max and pids.max of the control group)"));
}

AlignedBuffer AllocateAligned(size_t alignment, size_t bytes) {
  if (bytes > SIZE_MAX - alignment) throw std::bad_alloc();
  const size_t whole = std::max((bytes + alignment - 1) / alignment * alignment, alignment);
  AlignedBuffer buffer(static_cast<char*>(std::aligned_alloc(alignment, whole)));
  if (buffer == nullptr) throw std::bad_alloc();
  return buffer;
}

}  // namespace cairn

#include "common/resources/memory.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "common/status/reason.h"

namespace cairn {

absl::Status NoMemory(std::string_view what) {
  return MakeError(Reason::kMemoryLimit,
                   absl::StrCat("the system refused memory or a thread ", std::string(what),
                                " (ulimit -v and -u, memory.max and pids.max of the control group)"));
}

}  // namespace cairn

// Turns the system's refusal of memory into an error. A message or a file may need more memory than the system gives;
// then only the task fails, not the process.
#ifndef CAIRN_COMMON_RESOURCES_MEMORY_H_
#define CAIRN_COMMON_RESOURCES_MEMORY_H_

#include <new>
#include <stdexcept>
#include <string_view>
#include <system_error>

#include "absl/status/status.h"

namespace cairn {

// Returns RESOURCE_EXHAUSTED (MEMORY_LIMIT). `what` is for the message: "to read /ckpt/demo/...".
absl::Status NoMemory(std::string_view what);

// Calls `work`, which returns an absl::Status or an absl::StatusOr, and returns its result. If the system refuses
// memory or a std::thread within `work`, returns NoMemory(what). This does not cover other threads: each needs a
// WithMemory of its own.
template <typename Work>
auto WithMemory(std::string_view what, Work&& work) -> decltype(work()) {
  try {
    return work();
  } catch (const std::bad_alloc&) {
    return NoMemory(what);
  } catch (const std::length_error&) {  // a size that exceeds every container's limit
    return NoMemory(what);
  } catch (const std::system_error&) {
    return NoMemory(what);
  }
}

}  // namespace cairn

#endif  // CAIRN_COMMON_RESOURCES_MEMORY_H_

// The system may refuse memory. A message or a file can ask for much of it; then the task that needed it ends, and not
// the process.
#ifndef CAIRN_COMMON_RESOURCES_MEMORY_H_
#define CAIRN_COMMON_RESOURCES_MEMORY_H_

#include <new>
#include <stdexcept>
#include <string_view>
#include <system_error>

#include "absl/status/status.h"

namespace cairn {

// RESOURCE_EXHAUSTED (MEMORY_LIMIT). `what` is for the message: "to read /ckpt/demo/...".
absl::Status NoMemory(std::string_view what);

// Calls `work`, which returns an absl::Status or an absl::StatusOr, and returns its result; or NoMemory if the system
// refused memory, or a thread for a std::thread, anywhere in it. Work on another thread needs a WithMemory of its own.
template <typename Work>
auto WithMemory(std::string_view what, Work&& work) -> decltype(work()) {
  try {
    return work();
  } catch (const std::bad_alloc&) {
    return NoMemory(what);
  } catch (const std::length_error&) {  // more than any container holds
    return NoMemory(what);
  } catch (const std::system_error&) {
    return NoMemory(what);
  }
}

}  // namespace cairn

#endif  // CAIRN_COMMON_RESOURCES_MEMORY_H_

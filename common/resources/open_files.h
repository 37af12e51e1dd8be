// Raises the number of files and connections that a process may have open.
#ifndef CAIRN_COMMON_RESOURCES_OPEN_FILES_H_
#define CAIRN_COMMON_RESOURCES_OPEN_FILES_H_

#include <cstdint>

namespace cairn {

// Raises the limit (ulimit -n) as far as the system lets this process, and returns what it is now. The soft limit is
// often 1024, for programs that use select(); a process that has a connection to each of its peers needs more. Children
// inherit it.
uint64_t RaiseOpenFileLimit();

}  // namespace cairn

#endif  // CAIRN_COMMON_RESOURCES_OPEN_FILES_H_

// By this file a launcher learns where an agent serves.
#ifndef CAIRN_COMMON_PROCESS_ADDRESS_FILE_H_
#define CAIRN_COMMON_PROCESS_ADDRESS_FILE_H_

#include <string>

#include "absl/status/status.h"

namespace cairn {

// Writes the address and a newline so that whoever finds the file finds all of it.
// The reasons of common/file/errno_error.h.
absl::Status WriteAddressFile(const std::string& path, const std::string& address);

}  // namespace cairn

#endif  // CAIRN_COMMON_PROCESS_ADDRESS_FILE_H_

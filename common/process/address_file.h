// Writes the file from which a launcher reads the address of a coordinator or an agent.
#ifndef CAIRN_COMMON_PROCESS_ADDRESS_FILE_H_
#define CAIRN_COMMON_PROCESS_ADDRESS_FILE_H_

#include <string>

#include "absl/status/status.h"

namespace cairn {

// Writes the address and a newline. The file appears at once with all its contents. Fails with the reasons of
// common/file/errno_error.h.
absl::Status WriteAddressFile(const std::string& path, const std::string& address);

}  // namespace cairn

#endif  // CAIRN_COMMON_PROCESS_ADDRESS_FILE_H_

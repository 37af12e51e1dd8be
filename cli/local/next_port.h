// Gives services that run side by side ports that follow one another.
#ifndef CAIRN_CLI_LOCAL_NEXT_PORT_H_
#define CAIRN_CLI_LOCAL_NEXT_PORT_H_

#include <string>

#include "absl/status/statusor.h"

namespace cairn::cli {

// Returns `address` ("host:port") with a port that is higher by `number`. Port 0, for which the system chooses one,
// stays. `option` is for the message. INVALID_ARGUMENT (BAD_REQUEST): there is no such port.
absl::StatusOr<std::string> AddressAfter(const std::string& address, int number, const std::string& option);

}  // namespace cairn::cli

#endif  // CAIRN_CLI_LOCAL_NEXT_PORT_H_

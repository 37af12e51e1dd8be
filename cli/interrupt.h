// SIGINT and SIGTERM as a flag, so that work ends by itself and cleans up.
#ifndef CAIRN_CLI_INTERRUPT_H_
#define CAIRN_CLI_INTERRUPT_H_

#include <atomic>

namespace cairn::cli {

// From the first call on, SIGINT, SIGTERM and SIGHUP set the flag instead of ending the process; a second signal of the
// same kind ends it at once.
const std::atomic<bool>& InterruptFlag();

}  // namespace cairn::cli

#endif  // CAIRN_CLI_INTERRUPT_H_

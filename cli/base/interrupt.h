// Turns SIGINT, SIGTERM and SIGHUP into a flag, so that a command can stop and clean up.
#ifndef CAIRN_CLI_BASE_INTERRUPT_H_
#define CAIRN_CLI_BASE_INTERRUPT_H_

#include <atomic>

namespace cairn::cli {

// Returns the flag. After the first call, these signals set the flag instead of ending the process. A second signal of
// the same kind ends the process at once.
const std::atomic<bool>& InterruptFlag();

}  // namespace cairn::cli

#endif  // CAIRN_CLI_BASE_INTERRUPT_H_

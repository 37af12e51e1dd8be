// Turns SIGINT and SIGTERM into a flag, so that work can end by itself and clean up.
#ifndef CAIRN_CLI_BASE_INTERRUPT_H_
#define CAIRN_CLI_BASE_INTERRUPT_H_

#include <atomic>

namespace cairn::cli {

// From the first call on, SIGINT, SIGTERM and SIGHUP set the flag instead of ending the process; a second signal of the
// same kind ends it at once.
const std::atomic<bool>& InterruptFlag();

}  // namespace cairn::cli

#endif  // CAIRN_CLI_BASE_INTERRUPT_H_

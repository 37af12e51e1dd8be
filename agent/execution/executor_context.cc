#include "agent/execution/executor_context.h"

#include <algorithm>
#include <thread>

namespace cairn {

int FaultThreads() { return std::clamp(static_cast<int>(std::thread::hardware_concurrency()), 1, 8); }

}  // namespace cairn

// Finds out what this machine can do over NCCL.
#ifndef CAIRN_GPU_NCCL_NCCL_PROBE_H_
#define CAIRN_GPU_NCCL_NCCL_PROBE_H_

#include <cstdint>

#include "absl/time/time.h"
#include "cairn/v1/agent_coordination_service.pb.h"
#include "gpu/share/worker_process.h"

namespace cairn {

// Fills `version`, or `error`: the libraries cannot be used, or there is no GPU with the number `device`. Logs what it
// found, as a warning if somebody has to do something about it. `support` has the policies already. Asks a worker that
// is started for this, takes nothing of the device's memory and ends. Blocks, but no longer than `timeout` and the
// worker's grace.
void ProbeNccl(const WorkerProcessOptions& options, uint32_t device, absl::Duration timeout, v1::NcclSupport& support);

}  // namespace cairn

#endif  // CAIRN_GPU_NCCL_NCCL_PROBE_H_

// Finds out whether this machine can exchange bytes over NCCL.
#ifndef CAIRN_GPU_NCCL_NCCL_PROBE_H_
#define CAIRN_GPU_NCCL_NCCL_PROBE_H_

#include <cstdint>

#include "absl/time/time.h"
#include "cairn/v1/agent_coordination_service.pb.h"
#include "gpu/share/worker_process.h"

namespace cairn {

// Sets support.version, or support.error if the libraries cannot be used or there is no GPU with the number `device`.
// Logs the result, as a warning if the user must act on it. The policies in `support` must be set before. It starts a
// worker, which uses no device memory, asks it, and ends it. Blocks for at most `timeout` plus the worker's grace.
void ProbeNccl(const WorkerProcessOptions& options, uint32_t device, absl::Duration timeout, v1::NcclSupport& support);

}  // namespace cairn

#endif  // CAIRN_GPU_NCCL_NCCL_PROBE_H_

#include "agent/gpu/nccl_probe.h"

#include <string>

#include "common/process/log.h"
#include "common/status/status.h"

namespace cairn {
namespace {

constexpr size_t kMostErrorBytes = 300;

absl::StatusOr<worker::Described> Ask(const WorkerProcessOptions& options, absl::Duration timeout) {
  CAIRN_ASSIGN_OR_RETURN(const auto worker, WorkerProcess::Start(options));
  return worker->Describe(timeout);
}

}  // namespace

void ProbeNccl(const WorkerProcessOptions& options, absl::Duration timeout, v1::NcclSupport& support) {
  const auto described = Ask(options, timeout);
  if (!described.ok()) {
    // No error of this agent: on a machine without GPUs there is nothing to find. Whoever requires NCCL is told why.
    const std::string why(described.status().message());
    support.set_error(why.substr(0, kMostErrorBytes));
    return Log(LogLevel::kInfo, "nccl", {{"available", false}, {"why", why}});
  }
  support.set_version(described->nccl_version());
  Log(LogLevel::kInfo, "nccl",
      {{"available", true},
       {"version", described->nccl_version()},
       {"driver", described->driver_version()},
       {"devices", described->devices()},
       {"libnccl", options.libnccl},
       {"stand_in", described->stand_in()}});
}

}  // namespace cairn

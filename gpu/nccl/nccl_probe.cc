#include "gpu/nccl/nccl_probe.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/printable.h"
#include "common/process/log.h"
#include "common/status/status.h"

namespace cairn {
namespace {

constexpr size_t kMostErrorBytes = 300;

absl::StatusOr<worker::Described> Ask(const WorkerProcessOptions& options, absl::Duration timeout) {
  CAIRN_ASSIGN_OR_RETURN(const auto worker, WorkerProcess::Start(options));
  return worker->Describe(timeout);
}

// Returns the flags by which the user requires NCCL; empty if there are none.
std::vector<std::string> Requiring(const v1::NcclSupport& support) {
  std::vector<std::string> flags;
  if (support.policy() == v1::NcclSupport::REQUIRE) flags.emplace_back("--nccl=require");
  if (support.saves_policy() == v1::NcclSupport::REQUIRE) flags.emplace_back("--nccl-saves=require");
  return flags;
}

void Refuse(uint32_t device, const std::string& why, bool misconfigured, v1::NcclSupport& support) {
  support.set_error(std::string(CutText(Printable(why), kMostErrorBytes)));
  const std::vector<std::string> flags = Requiring(support);
  const std::string then = flags.empty()
                               ? "bytes between agents that share no memory go over gRPC"
                               : absl::StrCat(
                                     "operations that move bytes between agents that share no memory end with "
                                     "NCCL_UNAVAILABLE (",
                                     absl::StrJoin(flags, ", "), ")");
  // On a machine without GPUs this is no problem, so it is no warning.
  Log(misconfigured || !flags.empty() ? LogLevel::kWarn : LogLevel::kInfo, "nccl",
      {{"available", false}, {"device", device}, {"why", why}, {"then", then}});
}

}  // namespace

void ProbeNccl(const WorkerProcessOptions& options, uint32_t device, absl::Duration timeout, v1::NcclSupport& support) {
  const auto described = Ask(options, timeout);
  if (!described.ok()) return Refuse(device, std::string(described.status().message()), false, support);
  if (device >= described->devices()) {
    const std::string why = absl::StrCat("--nccl-device=", device, " (or LOCAL_RANK), but the agent sees ",
                                         described->devices(), described->devices() == 1 ? " GPU" : " GPUs");
    return Refuse(device, why, true, support);
  }
  support.set_version(described->nccl_version());
  Log(LogLevel::kInfo, "nccl",
      {{"available", true},
       {"device", device},
       {"version", described->nccl_version()},
       {"driver", described->driver_version()},
       {"devices", described->devices()},
       {"libnccl", options.libnccl},
       {"stand_in", described->stand_in()}});
}

}  // namespace cairn

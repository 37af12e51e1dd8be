#include "cli/named_step.h"

#include "absl/strings/str_cat.h"
#include "common/status/reason.h"
#include "common/status/status.h"

namespace cairn::cli {

absl::StatusOr<int64_t> NamedStep(CoordinatorClient& client, const CheckpointName& name, const std::string& verb) {
  if (name.step.has_value()) return *name.step;
  if (!name.latest) {
    return MakeError(Reason::kBadRequest, absl::StrCat("say which step to ", verb, ": ", name.job, "@STEP"),
                     {{"job", name.job}});
  }
  v1::GetCheckpointRequest request;
  request.set_job(name.job);
  v1::Checkpoint latest;
  CAIRN_RETURN_IF_ERROR(client.Call(&v1::CheckpointService::Stub::GetCheckpoint, request, &latest));
  return latest.step();
}

}  // namespace cairn::cli

#include "cli/client/named_step.h"

#include "absl/strings/str_cat.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "common/status/status_proto.h"
#include "store/read/tags.h"

namespace cairn::cli {

absl::StatusOr<int64_t> TaggedStep(const CheckpointName& name, const std::vector<v1::Checkpoint>& listed) {
  std::vector<StepTags> steps;
  for (const v1::Checkpoint& checkpoint : listed) {
    const bool unread = checkpoint.unread() && checkpoint.attempt() == 0;
    steps.push_back({checkpoint.step(),
                     {checkpoint.tags().begin(), checkpoint.tags().end()},
                     unread ? StatusFromProto(checkpoint.error()) : absl::OkStatus()});
  }
  return FindTag(name.job, name.tag, steps);
}

absl::StatusOr<CheckpointName> WithoutTag(CoordinatorClient& client, const CheckpointName& name) {
  if (name.tag.empty()) return name;
  CAIRN_ASSIGN_OR_RETURN(CheckpointList listed, ListWithMirror(client, name.job));
  std::vector<v1::Checkpoint>& steps = listed.checkpoints;
  steps.insert(steps.end(), listed.only_at_mirror.begin(), listed.only_at_mirror.end());
  CheckpointName found = name;
  CAIRN_ASSIGN_OR_RETURN(found.step, TaggedStep(name, steps));
  found.tag.clear();
  return found;
}

absl::StatusOr<int64_t> NamedStep(CoordinatorClient& client, const CheckpointName& name, const std::string& verb) {
  CAIRN_ASSIGN_OR_RETURN(const CheckpointName named, WithoutTag(client, name));
  if (named.step.has_value()) return *named.step;
  if (!name.latest) {
    return MakeError(Reason::kBadRequest, absl::StrCat("say which step to ", verb, ": ", name.job, "@STEP"),
                     {{"job", name.job},
                      {"next", absl::StrCat("`cairn list ", name.job, "` shows the steps; ", name.job,
                                            "@latest is the newest one.")}});
  }
  v1::GetCheckpointRequest request;
  request.set_job(name.job);
  v1::Checkpoint latest;
  CAIRN_RETURN_IF_ERROR(client.Call(&v1::CheckpointService::Stub::GetCheckpoint, request, &latest));
  return latest.step();
}

}  // namespace cairn::cli

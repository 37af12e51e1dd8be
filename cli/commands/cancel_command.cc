#include <cstdio>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "cli/client/coordinator_client.h"
#include "cli/client/named_step.h"
#include "cli/commands/commands.h"
#include "cli/views/checkpoint_view.h"
#include "common/base/clock.h"
#include "common/base/time_proto.h"
#include "common/format/checkpoint_path.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "common/status/status_proto.h"

namespace cairn::cli {
namespace {

// An abort waits until the agents have stopped; if they do not answer, at most for a lease.
constexpr absl::Duration kPatience = absl::Minutes(1);

struct Arguments {
  std::string name;
};

absl::Status NothingUnderWay(const std::string& job, const std::string& what) {
  return MakeError(
      Reason::kNotCommitted, absl::StrCat("no save of ", what, " is under way"),
      {{"job", job},
       {"next", absl::StrCat("There is nothing to cancel; `cairn status ", job, "` shows the last save.")}});
}

bool UnderWay(const v1::Checkpoint& checkpoint) {
  switch (checkpoint.state()) {
    case v1::Phase::PREPARING:
    case v1::Phase::COLLECTING:
    case v1::Phase::WRITING:
    case v1::Phase::COMMITTING:
    case v1::Phase::ABORTING:
      return true;
    default:
      return false;
  }
}

// Returns the running save that the arguments name. From then on SetKey identifies it.
absl::StatusOr<v1::Checkpoint> Find(CoordinatorClient& client, const CheckpointName& name) {
  v1::Checkpoint found;
  std::string what = name.job;
  if (name.step.has_value()) {
    absl::StrAppend(&what, "@", *name.step);
    v1::GetCheckpointRequest request;
    request.set_job(name.job);
    request.set_step(*name.step);
    const absl::Status status = client.Call(&v1::CheckpointService::Stub::GetCheckpoint, request, &found);
    if (HasReason(status, Reason::kNotCommitted)) return NothingUnderWay(name.job, what);
    CAIRN_RETURN_IF_ERROR(status);
  } else {
    v1::GetJobRequest request;
    request.set_job(name.job);
    v1::Job job;
    CAIRN_RETURN_IF_ERROR(client.Call(&v1::CheckpointService::Stub::GetJob, request, &job));
    found = job.checkpoint();
  }
  if (!UnderWay(found)) return NothingUnderWay(name.job, what);
  return found;
}

template <typename Request>
void SetKey(const v1::Checkpoint& checkpoint, Request& request) {
  request.set_job(checkpoint.job());
  // A save that ends before any rank has begun it can later be found only by its request id.
  const bool requested = checkpoint.state() == v1::Phase::PREPARING && !checkpoint.request_id().empty();
  if (checkpoint.has_step() && !requested) {
    request.set_step(checkpoint.step());
  } else {
    request.set_request_id(checkpoint.request_id());
  }
}

absl::StatusOr<v1::Checkpoint> Cancel(const CommandContext& context, const Arguments& arguments) {
  CAIRN_ASSIGN_OR_RETURN(const CheckpointName name, ParseCheckpointName(arguments.name));
  CAIRN_ASSIGN_OR_RETURN(const auto client, CoordinatorClient::Connect(context, name.job));
  CAIRN_ASSIGN_OR_RETURN(const CheckpointName named, WithoutTag(*client, name));
  CAIRN_ASSIGN_OR_RETURN(const v1::Checkpoint found, Find(*client, named));
  v1::CancelCheckpointRequest cancel;
  SetKey(found, cancel);
  v1::Checkpoint checkpoint;
  CAIRN_RETURN_IF_ERROR(client->Call(&v1::CheckpointService::Stub::CancelCheckpoint, cancel, &checkpoint));
  const absl::Time deadline = Clock::Real().SteadyNow() + kPatience;
  while (UnderWay(checkpoint)) {
    if (Clock::Real().SteadyNow() >= deadline) {
      if (checkpoint.has_error()) return StatusFromProto(checkpoint.error());
      return MakeError(Reason::kTimedOut, absl::StrCat("the save of ", arguments.name, " is still being given up"),
                       {{"job", name.job}, {"phase", StateName(checkpoint.state())}});
    }
    v1::WaitCheckpointRequest request;
    SetKey(found, request);
    request.set_known_revision(checkpoint.revision());
    request.set_coordinator_epoch(checkpoint.coordinator_epoch());
    request.mutable_max_wait()->set_seconds(1);
    CAIRN_RETURN_IF_ERROR(client->Call(&v1::CheckpointService::Stub::WaitCheckpoint, request, &checkpoint));
  }
  // After an overwriting save was cancelled, the step's earlier checkpoint is still there. It is older than the save.
  if (checkpoint.state() == v1::Phase::COMMITTED && TimeOf(checkpoint.commit_time()) >= TimeOf(found.create_time())) {
    return MakeError(Reason::kStepCommitted,
                     absl::StrCat(checkpoint.job(), "@", checkpoint.step(), " was committed before it was cancelled"),
                     {{"job", checkpoint.job()},
                      {"step", absl::StrCat(checkpoint.step())},
                      {"next", absl::StrCat("If nobody needs the checkpoint, `cairn delete ", checkpoint.job(), "@",
                                            checkpoint.step(), "` deletes it.")}});
  }
  return checkpoint;
}

absl::Status Report(const CommandContext& context, const Arguments& arguments) {
  CAIRN_ASSIGN_OR_RETURN(const v1::Checkpoint checkpoint, Cancel(context, arguments));
  if (context.json()) {
    std::printf("%s\n", JsonText(ProgressToJson(checkpoint)).c_str());
  } else if (checkpoint.has_step()) {
    std::printf("cancelled the save of %s@%lld\n", checkpoint.job().c_str(), static_cast<long long>(checkpoint.step()));
  } else {
    std::printf("cancelled the save of %s\n", checkpoint.job().c_str());
  }
  return absl::OkStatus();
}

}  // namespace

void AddCancelCommand(Command app, CommandContext& context) {
  auto arguments = std::make_shared<Arguments>();
  Command command = app.AddCommand("cancel", "Cancels a running save");
  command.AddOption("JOB@STEP", arguments->name, "The save; JOB alone means the save that runs now").Required();
  RefuseRootToChange(command);
  command.Footer(
      "Examples:\n  cairn cancel demo@1200\n  cairn cancel demo\n"
      "All ranks, and the command that requested the save, get SAVE_CANCELLED. A checkpoint that the save would have "
      "replaced stays.\nExit status: 0 cancelled, 1 no save runs, or it was committed first.");
  command.Action([arguments, &context] {
    context.exit_status = ReportError(context, WithNames(Report(context, *arguments), arguments->name));
  });
}

}  // namespace cairn::cli

#include <algorithm>
#include <cstdio>
#include <memory>

#include "absl/strings/str_cat.h"
#include "cli/base/interrupt.h"
#include "cli/base/progress_line.h"
#include "cli/base/terminal.h"
#include "cli/client/coordinator_client.h"
#include "cli/commands/commands.h"
#include "cli/views/checkpoint_view.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/base/random_id.h"
#include "common/base/time_proto.h"
#include "common/format/checkpoint_path.h"
#include "common/process/quantity.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "common/status/status_proto.h"

namespace cairn::cli {
namespace {

// A restarting coordinator serves again within this time. The save continues meanwhile.
constexpr absl::Duration kPatience = absl::Minutes(1);
// After the request's timeout, a coordinator may take this long to write the abort record and to answer.
constexpr absl::Duration kGrace = absl::Seconds(30);

struct Arguments {
  std::string job;
  std::optional<int64_t> step;
  bool no_wait = false;
  std::string timeout;
  std::string reason;
  std::optional<int64_t> rank;
};

std::string NameOf(const v1::Checkpoint& checkpoint) {
  return checkpoint.has_step() ? absl::StrCat(checkpoint.job(), "@", checkpoint.step()) : checkpoint.job();
}

// Tells the user what the requested save shares with an earlier save that still runs; empty if nothing.
std::string SharedWith(CoordinatorClient& client, const v1::CreateCheckpointRequest& request,
                       const v1::Checkpoint& answer) {
  if (IsEnded(answer)) return "";
  if (answer.state() != v1::Phase::PREPARING || (answer.has_step() && !request.has_step())) {
    return absl::StrCat("a save of ", NameOf(answer), " is already running; this command follows that save");
  }
  v1::GetJobRequest asked;
  asked.set_job(request.job());
  v1::Job job;
  // This is only information, so an error here does not stop the save.
  if (!client.Call(&v1::CheckpointService::Stub::GetJob, asked, &job).ok() || !job.has_checkpoint()) return "";
  const v1::Checkpoint& other = job.checkpoint();
  if (IsEnded(other) || other.request_id() == request.request_id()) return "";
  if (other.state() != v1::Phase::PREPARING) {
    return absl::StrCat("a save of ", NameOf(other), " is already running; this one begins when that one has ended");
  }
  if (request.has_step()) return "";
  return absl::StrCat(
      "a save of ", request.job(),
      " was already requested, and its ranks have not agreed on a step yet; this command follows that save");
}

// Returns the error of a command that ended before its save did.
absl::Status Interrupted(const std::string& job) {
  return MakeError(Reason::kInterrupted,
                   absl::StrCat("interrupted; the save of ", job, " continues without this command"),
                   {{"job", job}, {"next", absl::StrCat("`cairn status ", job, "` shows its progress.")}});
}

absl::StatusOr<v1::Checkpoint> Follow(CoordinatorClient& client, v1::Checkpoint checkpoint,
                                      const std::string& request_id, absl::Time deadline) {
  Mutex mutex;
  std::string text;
  const ProgressLine progress([&] {
    MutexLock lock(mutex);
    return text;
  });
  while (!IsEnded(checkpoint)) {
    {
      MutexLock lock(mutex);
      text = ProgressText(checkpoint);
    }
    if (InterruptFlag()) return Interrupted(checkpoint.job());
    if (Clock::Real().SteadyNow() >= deadline) {
      // The coordinator says why there is no outcome.
      if (checkpoint.has_error()) return StatusFromProto(checkpoint.error());
      return MakeError(Reason::kTimedOut, absl::StrCat("the save of ", checkpoint.job(), " has no outcome yet"),
                       {{"job", checkpoint.job()}, {"phase", StateName(checkpoint.state())}});
    }
    v1::WaitCheckpointRequest request;
    request.set_job(checkpoint.job());
    request.set_request_id(request_id);
    request.set_known_revision(checkpoint.revision());
    request.set_coordinator_epoch(checkpoint.coordinator_epoch());
    request.mutable_max_wait()->set_seconds(1);
    const std::string job = checkpoint.job();
    const absl::Duration left = deadline - Clock::Real().SteadyNow();
    const absl::Status status = client.Call(&v1::CheckpointService::Stub::WaitCheckpoint, request, &checkpoint,
                                            std::clamp(left, absl::Seconds(1), kPatience));
    if (HasReason(status, Reason::kInterrupted)) return Interrupted(job);
    CAIRN_RETURN_IF_ERROR(status);
  }
  return checkpoint;
}

// Returns whether the rank's training process has ended; false after an error, because the save will report it.
bool HasEnded(CoordinatorClient& client, const std::string& job, int64_t rank) {
  v1::GetJobRequest request;
  request.set_job(job);
  request.mutable_page()->set_first_rank(static_cast<uint32_t>(rank));
  request.mutable_page()->set_max_ranks(1);
  v1::Job view;
  if (!client.Call(&v1::CheckpointService::Stub::GetJob, request, &view).ok()) return false;
  return std::any_of(view.ranks().begin(), view.ranks().end(),
                     [&](const v1::JobRank& member) { return member.rank() == rank && !member.trainer_attached(); });
}

// Returns nothing if the rank of --for-rank has no training process.
absl::StatusOr<std::optional<v1::Checkpoint>> Save(const CommandContext& context, const Arguments& arguments) {
  if (const absl::Status named = CheckJobArgument(arguments.job); !named.ok()) {
    const auto checkpoint = ParseCheckpointName(arguments.job);
    if (!checkpoint.ok() || !checkpoint->step.has_value()) return named;
    return MakeError(Reason::kBadJobName, std::string(named.message()),
                     {{"job", checkpoint->job},
                      {"next", absl::StrCat("`cairn save ", checkpoint->job, " --step ", *checkpoint->step,
                                            "` saves at that step; without --step the ranks agree on one.")}});
  }
  absl::Duration timeout = absl::InfiniteDuration();
  if (!arguments.timeout.empty()) {
    CAIRN_ASSIGN_OR_RETURN(timeout, ParseDuration(arguments.timeout));
  }
  CAIRN_ASSIGN_OR_RETURN(const auto client, CoordinatorClient::Connect(context, arguments.job));
  v1::CreateCheckpointRequest request;
  request.set_job(arguments.job);
  request.set_request_id(RandomToken());
  request.set_reason(arguments.reason);
  if (arguments.rank && HasEnded(*client, arguments.job, *arguments.rank)) return std::nullopt;
  if (arguments.step) {
    CAIRN_RETURN_IF_ERROR(CheckStep(*arguments.step));
    request.set_step(*arguments.step);
  }
  if (timeout != absl::InfiniteDuration()) {
    SetDuration(timeout, *request.mutable_timeout());
  }
  const absl::Time deadline = Clock::Real().SteadyNow() + timeout + kGrace;
  v1::Checkpoint checkpoint;
  // Includes time for a save of another step that must end first.
  const absl::Duration wait = std::min(timeout + kGrace, absl::Duration(absl::Minutes(30)));
  InterruptFlag();  // from now on, Ctrl-C makes the command report the save that still runs
  const absl::Status created =
      client->Call(&v1::CheckpointService::Stub::CreateCheckpoint, request, &checkpoint, absl::Seconds(10), wait);
  if (HasReason(created, Reason::kInterrupted)) {
    return MakeError(Reason::kInterrupted, absl::StrCat("interrupted; the save of ", arguments.job, " may have begun"),
                     {{"job", arguments.job},
                      {"next", absl::StrCat("`cairn status ", arguments.job, "` shows whether it continues.")}});
  }
  CAIRN_RETURN_IF_ERROR(created);
  if (!context.json()) {
    const std::string shared = SharedWith(*client, request, checkpoint);
    if (!shared.empty())
      std::fprintf(stderr, "%s %s\n", Coloured(stderr, Colour::kYellow, "note:").c_str(), ForTerminal(shared).c_str());
  }
  if (arguments.no_wait) return checkpoint;
  CAIRN_ASSIGN_OR_RETURN(checkpoint, Follow(*client, std::move(checkpoint), request.request_id(), deadline));
  return checkpoint;
}

void Report(CommandContext& context, const v1::Checkpoint& checkpoint) {
  // The save was aborted, or its checkpoint has already been deleted.
  const bool failed = IsEnded(checkpoint) && checkpoint.state() != v1::Phase::COMMITTED;
  if (context.json()) {
    std::printf("%s\n", JsonText(ProgressToJson(checkpoint)).c_str());
  } else if (checkpoint.state() == v1::Phase::COMMITTED) {
    const absl::Duration took = TimeOf(checkpoint.commit_time()) - TimeOf(checkpoint.create_time());
    std::printf("%s %s@%lld: %s by %u ranks in %s\n", Coloured(stdout, Colour::kGreen, "committed").c_str(),
                checkpoint.job().c_str(), static_cast<long long>(checkpoint.step()),
                FormatSize(static_cast<int64_t>(checkpoint.bytes())).c_str(), checkpoint.world_size(),
                ShortDuration(took).c_str());
    std::printf("%s", WarningsText(checkpoint).c_str());
  } else if (!failed) {
    std::printf("%s\n", ProgressText(checkpoint).c_str());
  }
  if (!failed) return;
  if (!context.json()) {
    if (checkpoint.ranks_size() > 0) RankTable(checkpoint.ranks()).Print(stderr);
    ReportError(context, WithNames(StatusFromProto(checkpoint.error()), checkpoint.job()));
  }
  context.exit_status = kFailed;
}

}  // namespace

void AddSaveCommand(Command app, CommandContext& context) {
  auto arguments = std::make_shared<Arguments>();
  Command command = app.AddCommand("save", "Saves a job, all ranks at the same step, and waits for the outcome");
  command.AddOption("JOB", arguments->job, "The job's name").FromEnvironment("CAIRN_JOB").Required();
  command.AddOption("--step", arguments->step, "Save at this step; without it the ranks agree on one");
  command.AddFlag("--no-wait", arguments->no_wait, "Return when the save has begun");
  command.AddOption("--timeout", arguments->timeout, "Abort the save if it has no outcome by then, for example 10m");
  command.AddOption("--reason", arguments->reason, "The reason, for the coordinator's log, for example eviction");
  command
      .AddOption("--for-rank", arguments->rank,
                 "Do nothing if this rank has no training process any more; for a pod that ends")
      .FromEnvironment("CAIRN_RANK");
  RefuseRootToChange(command);
  command.Footer(
      "Examples:\n"
      "  cairn save demo\n"
      "  cairn save demo --timeout 10m --format=json\n"
      "  cairn save demo --reason eviction --timeout 100s\n"
      "Ctrl-C ends this command, not the save: `cairn status JOB` shows how it goes on. Where a save of the job is "
      "under\n"
      "way already, the command says so, and follows that save or waits for its end.\n"
      "Exit status: 0 committed, 1 aborted (the error names ranks and phase), 3 the answer is unknown, 130 "
      "interrupted.");
  command.Action([arguments, &context] {
    const auto checkpoint = Save(context, *arguments);
    if (!checkpoint.ok()) {
      context.exit_status = ReportError(context, WithNames(checkpoint.status(), arguments->job));
    } else if (checkpoint->has_value()) {
      Report(context, **checkpoint);
    } else {
      std::fprintf(stderr, "%s rank %lld of %s has no training process any more, so nothing was saved\n",
                   Coloured(stderr, Colour::kYellow, "note:").c_str(), static_cast<long long>(*arguments->rank),
                   arguments->job.c_str());
    }
  });
}

}  // namespace cairn::cli

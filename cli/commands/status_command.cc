#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "cli/base/interrupt.h"
#include "cli/base/live_screen.h"
#include "cli/client/coordinator_client.h"
#include "cli/commands/commands.h"
#include "cli/views/checkpoint_view.h"
#include "cli/views/job_view.h"
#include "cli/views/transfer_rates.h"
#include "common/base/clock.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "common/status/status_proto.h"

namespace cairn::cli {
namespace {

struct Arguments {
  std::string job;
  bool watch = false;
  bool ranks = false;
};

// Fetches all ranks of a job that is too large for one response, page by page. Pages are of different times.
absl::Status AddAllRanks(CoordinatorClient& client, v1::Job& job) {
  v1::GetJobRequest request;
  request.set_job(job.job());
  v1::Job whole;
  do {
    request.mutable_page()->set_first_rank(whole.next_rank());
    v1::Job page;
    CAIRN_RETURN_IF_ERROR(client.Call(&v1::CheckpointService::Stub::GetJob, request, &page));
    if (whole.job().empty()) {
      whole = std::move(page);
    } else {
      AppendPage(whole, page);
    }
  } while (whole.next_rank() != 0 && !InterruptFlag());
  whole.set_ranks_left_out(whole.next_rank() != 0);
  job = std::move(whole);
  return absl::OkStatus();
}

// Returns the latest step that is in storage, at the root or at its mirror. The coordinator remembers the last save,
// but storage may have lost it since; then this marks it in `job`. Sets `mirror` if the coordinator has one. If storage
// does not answer, returns the step that the coordinator remembers.
absl::StatusOr<std::optional<v1::Checkpoint>> LookAtStorage(CoordinatorClient& client, v1::Job& job,
                                                            std::optional<v1::Mirror>& mirror) {
  if (job.stalled_storage_calls() > 0) return LastCommitted(client, job.job());
  const auto listed = ListWithMirror(client, job.job());
  if (listed.ok()) mirror = listed->mirror;
  const bool read = listed.ok() && std::none_of(listed->checkpoints.begin(), listed->checkpoints.end(),
                                                [](const v1::Checkpoint& checkpoint) { return checkpoint.unread(); });
  if (!read) return LastCommitted(client, job.job());
  bool stands = false;
  for (const v1::Checkpoint& checkpoint : listed->checkpoints) {
    stands = stands || checkpoint.step() == job.checkpoint().step();
  }
  if (job.checkpoint().state() == v1::Phase::COMMITTED && !stands) {
    const std::string name = absl::StrCat(job.job(), "@", job.checkpoint().step());
    job.mutable_checkpoint()->set_state(v1::Phase::DELETED);
    *job.mutable_checkpoint()->mutable_error() = StatusToProto(
        MakeError(Reason::kNotCommitted, absl::StrCat(name, " was committed, and was deleted or removed since"),
                  {{"job", job.job()},
                   {"step", absl::StrCat(job.checkpoint().step())},
                   {"next", absl::StrCat("`cairn list ", job.job(), "` shows the existing checkpoints.")}}));
  }
  const v1::Checkpoint* const latest = LatestOf(*listed);
  return latest == nullptr ? std::nullopt : std::optional(*latest);
}

absl::Status Show(const CommandContext& context, const Arguments& arguments) {
  CAIRN_RETURN_IF_ERROR(CheckJobArgument(arguments.job));
  CAIRN_ASSIGN_OR_RETURN(const auto client, CoordinatorClient::Connect(context, arguments.job));
  const bool live = arguments.watch && !context.json() && isatty(STDOUT_FILENO);
  // `restore` gives the terminal its cursor back, whatever ends the command.
  LiveScreen screen;
  const auto restore = absl::MakeCleanup([&screen] {
    std::fputs(screen.End().c_str(), stdout);
    std::fflush(stdout);
  });
  TransferRates rates;
  const RanksShown shown_ranks = arguments.ranks ? RanksShown::kAll : RanksShown::kNoteworthy;
  v1::WaitJobRequest request;
  request.set_job(arguments.job);
  v1::Job job;
  do {
    CAIRN_RETURN_IF_ERROR(client->Call(&v1::CheckpointService::Stub::WaitJob, request, &job,
                                       arguments.watch ? absl::Minutes(1) : absl::ZeroDuration()));
    if (job.ranks_left_out() && (context.json() || arguments.ranks)) CAIRN_RETURN_IF_ERROR(AddAllRanks(*client, job));
    // A live view asks often, and a list would read storage each time.
    std::optional<v1::Mirror> mirror;
    CAIRN_ASSIGN_OR_RETURN(const auto committed, arguments.watch ? LastCommitted(*client, arguments.job)
                                                                 : LookAtStorage(*client, job, mirror));
    const ShownOperation shown = OperationUnderWay(job);
    const auto& ranks = shown.ranks != nullptr ? *shown.ranks : v1::Load::default_instance().ranks();
    rates.Update(shown.number, ranks, Clock::Real().SteadyNow());
    if (context.json()) {
      nlohmann::ordered_json json = JobToJson(job, committed);
      if (mirror.has_value()) json["mirror"] = MirrorToJson(*mirror);
      std::printf("%s\n", JsonText(json, arguments.watch ? -1 : 2).c_str());
    } else if (live) {
      const std::string text = LiveJobText(stdout, job, committed, rates, shown_ranks);
      std::fputs(screen.Frame(text, SizeOfTerminal(STDOUT_FILENO)).c_str(), stdout);
    } else {
      std::fputs(JobText(stdout, job, committed, shown_ranks).c_str(), stdout);
      if (mirror.has_value()) std::fputs(MirrorText(*mirror).c_str(), stdout);
    }
    std::fflush(stdout);
    request.set_known_revision(job.revision());
    request.set_coordinator_epoch(job.coordinator_epoch());
    request.mutable_max_wait()->set_seconds(1);
  } while (arguments.watch && !InterruptFlag());
  return absl::OkStatus();
}

}  // namespace

void AddStatusCommand(Command app, CommandContext& context) {
  auto arguments = std::make_shared<Arguments>();
  Command command =
      app.AddCommand("status", "Shows what a job does now: phase, bytes per rank, which ranks are late and why");
  command.AddOption("JOB", arguments->job, "The job's name").Required();
  RefuseRootToLook(command);
  command.AddFlag("--watch", arguments->watch,
                  "Show it again whenever it changes, until Ctrl-C: on a terminal in place, with rates");
  command.AddFlag("--ranks", arguments->ranks,
                  "Show every rank; without it a large job shows only ranks that are late, silent or have a note");
  command.Footer("Examples:\n  cairn status demo\n  cairn status demo --watch\n  cairn status demo --ranks");
  command.Action([arguments, &context] {
    context.exit_status = ReportError(context, WithNames(Show(context, *arguments), arguments->job));
  });
}

}  // namespace cairn::cli

#include "cli/status_command.h"

#include <unistd.h>

#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "cli/checkpoint_view.h"
#include "cli/coordinator_client.h"
#include "cli/interrupt.h"
#include "common/base/time_proto.h"
#include "common/process/quantity.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "common/status/status_proto.h"
#include "common/storage/checkpoint_path.h"

namespace cairn::cli {
namespace {

struct Arguments {
  std::string job;
  bool watch = false;
};

nlohmann::ordered_json LoadToJson(const v1::Load& load) {
  nlohmann::ordered_json json = {
      {"number", load.number()}, {"state", v1::Load::State_Name(load.state())}, {"step", nullptr}};
  if (load.has_step()) json["step"] = load.step();
  if (!load.transport().empty()) json["transport"] = load.transport();
  json["error"] = load.has_error() ? ErrorToJson(StatusFromProto(load.error())) : nullptr;
  return json;
}

// Returns the latest committed step; nothing if the job has none.
absl::StatusOr<std::optional<v1::Checkpoint>> LastCommitted(CoordinatorClient& client, const std::string& job) {
  v1::GetCheckpointRequest request;
  request.set_job(job);
  v1::Checkpoint checkpoint;
  const absl::Status status = client.Call(&v1::CheckpointService::Stub::GetCheckpoint, request, &checkpoint);
  if (HasReason(status, Reason::kNotCommitted)) return std::nullopt;
  CAIRN_RETURN_IF_ERROR(status);
  return checkpoint;
}

nlohmann::ordered_json JobToJson(const v1::Job& job, const std::optional<v1::Checkpoint>& committed) {
  nlohmann::ordered_json json = ProgressToJson(job.checkpoint());
  json["job"] = job.job();
  if (!job.has_checkpoint()) {
    json["state"] = nullptr;
    json["phase"] = nullptr;
  }
  json["world_size"] = job.world_size();
  json["agents"] = nlohmann::ordered_json::array();
  for (const v1::JobRank& rank : job.ranks()) {
    nlohmann::ordered_json agent = {{"rank", rank.rank()},
                                    {"node", rank.node()},
                                    {"address", rank.address()},
                                    {"trainer_attached", rank.trainer_attached()}};
    agent["current_step"] = rank.has_current_step() ? nlohmann::ordered_json(rank.current_step()) : nullptr;
    json["agents"].push_back(std::move(agent));
  }
  json["last_committed"] = committed ? ListedToJson(*committed) : nlohmann::ordered_json();
  json["stalled_storage_calls"] = job.stalled_storage_calls();
  json["loads"] = nlohmann::ordered_json::array();
  for (const v1::Load& load : job.loads()) json["loads"].push_back(LoadToJson(load));
  return json;
}

// Returns for example " (none of rank 3)", if agents are missing.
std::string WithoutAgent(const v1::Job& job) {
  std::set<int> there;
  for (const v1::JobRank& rank : job.ranks()) there.insert(static_cast<int>(rank.rank()));
  std::vector<int> missing;
  for (int rank = 0; rank < static_cast<int>(job.world_size()); ++rank) {
    if (!there.contains(rank)) missing.push_back(rank);
  }
  if (missing.empty()) return "";
  return absl::StrCat(" (none of ", missing.size() == 1 ? "rank " : "ranks ", JoinRanks(missing), ")");
}

// Returns for example "RANK_LATE: job: ...".
std::string ErrorText(const absl::Status& error) {
  const auto reason = ReasonOf(error);
  return absl::StrCat(reason ? absl::StrCat(std::string(InfoOf(*reason).name), ": ") : "", error.message());
}

void PrintJob(const v1::Job& job, const std::optional<v1::Checkpoint>& committed) {
  std::printf("%s: %d of %u agents%s, coordinator epoch %llu\n", Coloured(stdout, Colour::kBold, job.job()).c_str(),
              job.ranks_size(), job.world_size(), WithoutAgent(job).c_str(),
              static_cast<unsigned long long>(job.coordinator_epoch()));
  if (job.stalled_storage_calls() > 0) {
    std::printf("%s\n", Coloured(stdout, Colour::kRed,
                                 absl::StrCat("storage does not answer ", job.stalled_storage_calls(),
                                              " calls of the coordinator"))
                            .c_str());
  }
  Table agents({"RANK", "NODE", "TRAINER", "STEP", "HEARD"});
  for (const v1::JobRank& rank : job.ranks()) {
    agents.Add({absl::StrCat(rank.rank()), rank.node(), rank.trainer_attached() ? "attached" : "none",
                rank.has_current_step() ? absl::StrCat(rank.current_step()) : "",
                absl::StrCat(ShortDuration(DurationOf(rank.last_heard())), " ago")});
  }
  agents.Print(stdout);
  if (job.has_checkpoint()) {
    std::printf("\nsave: %s\n", ProgressText(job.checkpoint()).c_str());
    if (!IsEnded(job.checkpoint())) RankTable(job.checkpoint().ranks()).Print(stdout);
    if (job.checkpoint().has_error()) {
      const absl::Status error = StatusFromProto(job.checkpoint().error());
      std::printf("  %s\n  next: %s\n", Coloured(stdout, Colour::kRed, ErrorText(error)).c_str(),
                  NextActionOf(error).c_str());
    }
    if (job.checkpoint().has_warning()) std::printf("  %s\n", WarningText(job.checkpoint()).c_str());
  }
  if (committed.has_value()) {
    std::printf("\nlatest committed: %s@%lld, %s by %u ranks, %s\n", job.job().c_str(),
                static_cast<long long>(committed->step()), FormatSize(static_cast<int64_t>(committed->bytes())).c_str(),
                committed->world_size(), TimeText(committed->commit_time()).c_str());
  } else {
    std::printf("\nlatest committed: none\n");
  }
  if (job.loads_size() > 0) std::printf("\n");
  for (const v1::Load& load : job.loads()) {
    const std::string step = load.has_step() ? absl::StrCat(" of step ", load.step()) : "";
    std::printf("load %llu%s: %s\n", static_cast<unsigned long long>(load.number()), step.c_str(),
                absl::AsciiStrToLower(v1::Load::State_Name(load.state())).c_str());
    if (!load.transport().empty()) std::printf("  transport: %s\n", load.transport().c_str());
    if (load.has_error()) std::printf("  %s\n", ErrorText(StatusFromProto(load.error())).c_str());
    if (load.ranks_size() > 0) RankTable(load.ranks()).Print(stdout);
  }
}

absl::Status Show(const CommandContext& context, const Arguments& arguments) {
  CAIRN_RETURN_IF_ERROR(CheckJobName(arguments.job));
  CAIRN_ASSIGN_OR_RETURN(const auto client, CoordinatorClient::Connect(context));
  v1::WaitJobRequest request;
  request.set_job(arguments.job);
  v1::Job job;
  do {
    CAIRN_RETURN_IF_ERROR(client->Call(&v1::CheckpointService::Stub::WaitJob, request, &job,
                                       arguments.watch ? absl::Minutes(1) : absl::ZeroDuration()));
    CAIRN_ASSIGN_OR_RETURN(const auto committed, LastCommitted(*client, arguments.job));
    if (context.json()) {
      std::printf("%s\n", JobToJson(job, committed).dump(arguments.watch ? -1 : 2).c_str());
    } else {
      if (arguments.watch && isatty(STDOUT_FILENO)) std::printf("\033[H\033[2J");
      PrintJob(job, committed);
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
  Command command = app.AddCommand("status", "Shows a job live: phase, bytes per rank, who is late and why");
  command.AddOption("JOB", arguments->job, "The job's name").Required();
  command.AddFlag("--watch", arguments->watch, "Show it again whenever it changes, until Ctrl-C");
  command.Footer("Examples:\n  cairn status demo\n  cairn status demo --watch");
  command.Action([arguments, &context] { context.exit_status = ReportError(context, Show(context, *arguments)); });
}

}  // namespace cairn::cli

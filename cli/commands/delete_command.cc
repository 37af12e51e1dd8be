#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/base/terminal.h"
#include "cli/client/coordinator_client.h"
#include "cli/client/named_step.h"
#include "cli/commands/commands.h"
#include "common/format/checkpoint_path.h"
#include "common/process/quantity.h"
#include "common/status/status.h"

namespace cairn::cli {
namespace {

// The coordinator answers within 8 s, unless its storage is slow.
constexpr absl::Duration kPatience = absl::Seconds(20);

struct Arguments {
  std::string name;
  std::string cause = "cairn delete";
};

bool WasDeletedBefore(const v1::DeleteCheckpointResponse& answer, const v1::Checkpoint& attempt) {
  const auto& before = answer.previously_deleted_attempts();
  return std::find(before.begin(), before.end(), attempt.attempt()) != before.end();
}

nlohmann::ordered_json AnswerToJson(const v1::DeleteCheckpointResponse& answer) {
  const auto& before = answer.previously_deleted_attempts();
  nlohmann::ordered_json json = {{"deleted", nlohmann::ordered_json::array()},
                                 {"files_left", answer.files_left()},
                                 {"mirror_follows", answer.mirror_follows()},
                                 {"previously_deleted_attempts", std::vector<uint32_t>(before.begin(), before.end())}};
  for (const v1::Checkpoint& deleted : answer.deleted_attempts()) {
    json["deleted"].push_back(
        {{"job", deleted.job()}, {"step", deleted.step()}, {"attempt", deleted.attempt()}, {"bytes", deleted.bytes()}});
  }
  return json;
}

absl::Status Delete(const CommandContext& context, const Arguments& arguments) {
  CAIRN_ASSIGN_OR_RETURN(const CheckpointName name, ParseCheckpointName(arguments.name));
  CAIRN_ASSIGN_OR_RETURN(const auto client, CoordinatorClient::Connect(context, name.job));
  CAIRN_ASSIGN_OR_RETURN(const int64_t step, NamedStep(*client, name, "delete"));
  v1::DeleteCheckpointRequest request;
  request.set_job(name.job);
  request.set_step(step);
  request.set_cause(arguments.cause);
  v1::DeleteCheckpointResponse answer;
  CAIRN_RETURN_IF_ERROR(client->Call(&v1::CheckpointService::Stub::DeleteCheckpoint, request, &answer,
                                     /*patience=*/absl::ZeroDuration(), kPatience));
  if (context.json()) {
    std::printf("%s\n", JsonText(AnswerToJson(answer)).c_str());
    return absl::OkStatus();
  }
  for (const v1::Checkpoint& deleted : answer.deleted_attempts()) {
    const auto deleted_step = static_cast<long long>(deleted.step());
    if (WasDeletedBefore(answer, deleted)) {
      std::printf("%s@%lld (attempt %u) was deleted before\n", deleted.job().c_str(), deleted_step, deleted.attempt());
      if (deleted.has_error()) std::printf("  %s\n", ForTerminal(deleted.error().message()).c_str());
      continue;
    }
    std::printf("deleted %s@%lld (attempt %u), %s\n", deleted.job().c_str(), deleted_step, deleted.attempt(),
                FormatSize(static_cast<int64_t>(deleted.bytes())).c_str());
  }
  if (answer.files_left()) {
    std::printf(
        "its files are still there: they go when no load reads them, or when the agents of an earlier "
        "coordinator have had the time to come back (two leases, 20 s by default)\n");
  }
  if (answer.mirror_follows()) {
    std::printf("its copy at the mirror is deleted too, as soon as the mirror can be reached; `cairn list` shows it\n");
  }
  return absl::OkStatus();
}

}  // namespace

void AddDeleteCommand(Command app, CommandContext& context) {
  auto arguments = std::make_shared<Arguments>();
  Command command = app.AddCommand("delete", "Deletes one checkpoint, if the job has another valid one");
  command.AddOption("JOB@STEP", arguments->name, "The checkpoint").Required();
  command.AddOption("--cause", arguments->cause, "The reason, for people who miss the checkpoint later").ShowDefault();
  RefuseRootToChange(command);
  command.Footer(
      "Example:\n  cairn delete demo@1200 --coordinator 127.0.0.1:7420\n"
      "It refuses to delete the job's last valid checkpoint, one that is being loaded, and one that is pinned. The "
      "step may\nbe saved again. Deleting a deleted step does nothing.\n"
      "Exit status: 0 deleted, 1 refused: the checkpoint stays as it was, 3 the outcome is unknown: try again.");
  command.Action([arguments, &context] {
    context.exit_status =
        ReportError(context, WithNames(WithOwnCoordinator(Delete(context, *arguments)), arguments->name));
  });
}

}  // namespace cairn::cli

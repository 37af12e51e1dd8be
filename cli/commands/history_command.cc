#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "cli/client/coordinator_client.h"
#include "cli/client/unknown_job.h"
#include "cli/commands/commands.h"
#include "cli/views/history_view.h"
#include "cli/views/timeline_view.h"
#include "common/status/status.h"
#include "store/open/open_storage.h"
#include "store/read/checkpoint_store.h"

namespace cairn::cli {
namespace {

struct Arguments {
  std::string name;
  std::string root;
  int last = 20;
};

// The next two functions return the entries of the job, oldest first.

absl::StatusOr<std::vector<HistoryEntry>> FromCoordinator(const CommandContext& context, const std::string& job) {
  CAIRN_ASSIGN_OR_RETURN(const auto client, CoordinatorClient::Connect(context, job));
  v1::ListTimelinesRequest request;
  request.set_job(job);
  request.set_summary(true);
  CAIRN_ASSIGN_OR_RETURN(const std::vector<v1::Timeline> timelines, FetchTimelines(*client, request));
  std::vector<HistoryEntry> entries;
  for (auto timeline = timelines.rbegin(); timeline != timelines.rend(); ++timeline) {
    entries.push_back(EntryOf(*timeline));
  }
  if (entries.empty()) CAIRN_RETURN_IF_ERROR(CheckJobOf(*client, job));
  return entries;
}

absl::StatusOr<std::vector<HistoryEntry>> FromStorage(const std::string& root, const std::string& job) {
  CAIRN_ASSIGN_OR_RETURN(const auto storage, OpenStorageOfJob(root, job));
  CAIRN_ASSIGN_OR_RETURN(const std::vector<StepRecord> steps, CheckpointStore(*storage).ReadJob(job));
  if (steps.empty()) CAIRN_RETURN_IF_ERROR(CheckJobIn(*storage, job));
  return EntriesOf(steps);
}

absl::Status History(const CommandContext& context, const Arguments& arguments) {
  CAIRN_RETURN_IF_ERROR(CheckJobArgument(arguments.name));
  CAIRN_ASSIGN_OR_RETURN(std::vector<HistoryEntry> entries, arguments.root.empty()
                                                                ? FromCoordinator(context, arguments.name)
                                                                : FromStorage(arguments.root, arguments.name));
  const size_t shown = std::min(entries.size(), static_cast<size_t>(arguments.last));
  entries.erase(entries.begin(), entries.end() - static_cast<ptrdiff_t>(shown));
  if (context.json()) {
    nlohmann::ordered_json json = {{"job", arguments.name}, {"operations", nlohmann::ordered_json::array()}};
    for (const HistoryEntry& entry : entries) json["operations"].push_back(EntryToJson(entry));
    std::printf("%s\n", JsonText(json).c_str());
  } else if (entries.empty()) {
    std::printf(arguments.root.empty()
                    ? "no save or load of %s has ended since the coordinator started; with --root, what storage knows "
                      "is shown\n"
                    : "%s has saved nothing here\n",
                arguments.name.c_str());
  } else {
    HistoryTable(entries).Print(stdout);
  }
  return absl::OkStatus();
}

}  // namespace

void AddHistoryCommand(Command app, CommandContext& context) {
  auto arguments = std::make_shared<Arguments>();
  Command command = app.AddCommand("history", "Lists a job's saves, loads and reshards, and how long they took");
  command.AddOption("JOB", arguments->name, "The job's name").Required();
  command.AddOption("--root", arguments->root, "Read this storage instead of asking a coordinator");
  command.AddOption("--last", arguments->last, "Number of operations: the newest ones")
      .Between(1, 100'000)
      .ShowDefault();
  command.Footer(
      "Examples:\n  cairn history demo\n  cairn history demo --root /checkpoints --format=json\n"
      "A coordinator tells the last 100 saves, loads and reshards since it started: result, duration, bytes, rate, "
      "and\n"
      "which rank ended the longest part (`cairn timeline` has all parts). Storage tells all saves, also those that "
      "were\n"
      "given up or deleted, but not how long they took.");
  command.Action([arguments, &context] {
    context.exit_status =
        ReportError(context, WithNames(History(context, *arguments), arguments->name, arguments->root));
  });
}

}  // namespace cairn::cli

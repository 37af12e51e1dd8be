#include <algorithm>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cli/base/terminal.h"
#include "cli/client/coordinator_client.h"
#include "cli/client/named_step.h"
#include "cli/commands/commands.h"
#include "cli/views/checkpoint_view.h"
#include "cli/views/chrome_trace.h"
#include "cli/views/operation_result.h"
#include "cli/views/timeline_view.h"
#include "common/base/enum_text.h"
#include "common/base/time_proto.h"
#include "common/format/checkpoint_path.h"
#include "common/status/reason.h"
#include "common/status/status.h"

namespace cairn::cli {
namespace {

struct Arguments {
  std::string name;
};

// Returns the job's timelines, oldest first. They include the ranks only if `ranks`.
absl::StatusOr<std::vector<v1::Timeline>> Fetch(const CommandContext& context, CheckpointName name, bool ranks) {
  CAIRN_ASSIGN_OR_RETURN(const auto client, CoordinatorClient::Connect(context, name.job));
  CAIRN_ASSIGN_OR_RETURN(name, WithoutTag(*client, name));
  v1::ListTimelinesRequest request;
  request.set_job(name.job);
  if (name.step.has_value()) request.set_step(*name.step);
  request.set_summary(!ranks);
  CAIRN_ASSIGN_OR_RETURN(std::vector<v1::Timeline> timelines, FetchTimelines(*client, request));
  std::reverse(timelines.begin(), timelines.end());
  if (!timelines.empty()) return timelines;
  const std::string asked = name.step.has_value() ? absl::StrCat(name.job, "@", *name.step) : name.job;
  return MakeError(Reason::kNotCommitted,
                   absl::StrCat("the coordinator has no timeline of ", asked,
                                ": no save or load of it has ended since the coordinator started"),
                   {{"job", name.job},
                    {"next", absl::StrCat("`cairn status ", name.job, "` shows running operations; `cairn list ",
                                          name.job, "` shows earlier saves.")}});
}

void PrintTable(const std::vector<v1::Timeline>& timelines) {
  Table table({"OPERATION", "STEP", "BEGAN", "RESULT", "PHASE", "TOOK", "LAST RANK"});
  for (const v1::Timeline& timeline : timelines) {
    const std::string result = ResultOf(timeline);
    table.Add({EnumText(timeline.kind()), timeline.has_step() ? absl::StrCat(timeline.step()) : "",
               TimeText(timeline.begin_time()), result, "all", ShortDuration(DurationOf(timeline.duration())), ""},
              result == kOperationDone || result == kNothingToLoad ? Colour::kBold : Colour::kRed);
    for (const v1::TimelineSpan& span : timeline.spans()) {
      table.Add({"", "", "", "", EnumText(span.phase()),
                 ShortDuration(DurationOf(span.end()) - DurationOf(span.begin())),
                 absl::StrJoin(span.awaited_ranks(), ", ")});
    }
  }
  table.Print(stdout);
}

absl::Status Show(const CommandContext& context, const Arguments& arguments) {
  CAIRN_ASSIGN_OR_RETURN(const CheckpointName name, ParseCheckpointName(arguments.name));
  CAIRN_ASSIGN_OR_RETURN(const std::vector<v1::Timeline> timelines,
                         Fetch(context, name, /*ranks=*/!context.table_asked()));
  if (context.table_asked()) {
    PrintTable(timelines);
  } else {
    std::printf("%s\n", JsonText(ChromeTrace(timelines), -1).c_str());
  }
  return absl::OkStatus();
}

}  // namespace

void AddTimelineCommand(Command app, CommandContext& context) {
  auto arguments = std::make_shared<Arguments>();
  Command command =
      app.AddCommand("timeline", "Shows where saves and loads spent their time, and which ranks waited for which");
  command.AddOption("JOB", arguments->name, "The job, or JOB@STEP for the operations on one step").Required();
  RefuseRootToLook(command);
  command.Footer(
      "Prints Chrome trace events, which https://ui.perfetto.dev and chrome://tracing open; with --format=table it\n"
      "prints a table of the phases and the rank that was last in each. The coordinator keeps the last 100 "
      "operations of\na job until it restarts.\nExamples:\n  cairn timeline demo > trace.json\n"
      "  cairn timeline demo@120 --format=table");
  command.Action([arguments, &context] {
    context.exit_status = ReportError(context, WithNames(Show(context, *arguments), arguments->name));
  });
}

}  // namespace cairn::cli

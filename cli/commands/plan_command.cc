#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "cli/base/terminal.h"
#include "cli/base/text_input.h"
#include "cli/commands/commands.h"
#include "common/status/reason.h"
#include "planner/plan_json.h"

namespace cairn::cli {
namespace {

int Run(const CommandContext& context, const std::string& path, bool table, PlanAnswer (*plan)(std::string_view)) {
  const absl::StatusOr<std::string> text = ReadTextInput(path);
  PlanAnswer answer;
  if (text.ok()) {
    answer = plan(*text);
  } else {
    answer.json["errors"] = {{{"reason", ErrorToJson(text.status())["reason"]},
                              {"name", ""},
                              {"ranks", nlohmann::json::array()},
                              {"offset", nlohmann::json::array()},
                              {"shape", nlohmann::json::array()},
                              {"message", std::string(text.status().message())}}};
    answer.summary = absl::StrCat(text.status().message(), "\n");
  }
  if (table) {
    std::fputs(ForTerminal(answer.summary).c_str(), answer.ok ? stdout : stderr);
  } else {
    const std::string out = JsonText(answer.json);
    std::fwrite(out.data(), 1, out.size(), stdout);
    std::fputc('\n', stdout);
  }
  if (std::fflush(stdout) != 0) {
    return ReportError(
        context, MakeError(Reason::kStorageError, absl::StrCat("cannot write the answer: ", std::strerror(errno))));
  }
  return answer.ok ? kDone : kFailed;
}

void AddDryRun(Command plan, CommandContext& context, const char* name, const char* description, const char* footer,
               PlanAnswer (*run)(std::string_view)) {
  auto path = std::make_shared<std::string>();
  Command command = plan.AddCommand(name, description);
  command.AddOption("FILE", *path, "The request as JSON; - reads standard input").Required();
  command.Footer(footer);
  // This command is for scripts, so it prints JSON by default.
  command.Action([&context, path, run] { context.exit_status = Run(context, *path, context.table_asked(), run); });
}

}  // namespace

void AddPlanCommand(Command app, CommandContext& context) {
  Command plan = app.AddCommand("plan", "Dry runs of the planner: which rank writes, reads and sends which bytes");
  plan.RequireCommand();
  AddDryRun(
      plan, context, "save", "Validates layouts and plans a save: files, positions, balance, moves",
      "Examples:\n"
      "  cairn plan save layouts.json\n"
      "  cairn --format=table plan save layouts.json     # balance, for people\n"
      "Request: {\"layouts\": [{\"ranks\": [0, 1], \"node\": \"a\", \"tensors\": [{\"name\": \"w\", \"dtype\": "
      "\"float32\",\n"
      "  \"global_shape\": [4, 8], \"shards\": [{\"offset\": [0, 0], \"shape\": [4, 8], \"flat_range\": [0, 16]}]}],\n"
      "  \"objects\": [{\"name\": \"scheduler\", \"bytes\": 100}], \"aliases\": {\"head\": \"w\"}}],\n"
      "  \"bins\": 2, \"moves\": \"never\"}",
      PlanSaveJson);
  AddDryRun(plan, context, "load", "Plans a load from one set of layouts into another: reads, copies, gaps",
            "Example:\n"
            "  cairn plan load pair.json\n"
            "  cairn --format=table plan load pair.json        # what matches and what does not, for people\n"
            "Request: {\"source\": {\"layouts\": [..]}, \"target\": {\"layouts\": [..]}, \"bins\": 2,\n"
            "  \"mapping\": {\"aoa_statements\": [..]} or null}",
            PlanLoadJson);
  AddDryRun(
      plan, context, "bins", "Splits items into bins as Megatron does",
      "Example:\n"
      "  echo '{\"bins\": 2, \"items\": [{\"name\": \"a\", \"kind\": \"tensor\", \"bytes\": 8}]}' | cairn plan bins -",
      PlanBinsJson);
}

}  // namespace cairn::cli

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cli/base/terminal.h"
#include "cli/base/text_input.h"
#include "cli/commands/commands.h"
#include "common/base/printable.h"
#include "common/status/reason.h"
#include "mapping/json.h"
#include "mapping/mapping.h"
#include "mapping/ready_mapping.h"
#include "mapping/report.h"

namespace cairn::cli {
namespace {

void ToStdout(std::string_view text) { std::fwrite(text.data(), 1, text.size(), stdout); }

int Resolve(const CommandContext& context, const std::string& path, bool table) {
  std::vector<aoa::MappingError> errors;
  size_t total = 0;
  const auto fail = [&](const absl::Status& status) {
    if (!table) {
      aoa::WriteFailure(status, errors, total, ToStdout);
      return ExitStatusFor(status);
    }
    // Without --format=table this command prints JSON. So in table form errors are always text.
    if (errors.empty()) return ReportError(context, status);
    for (const aoa::MappingError& error : errors) {
      ReportError(context, MakeError(error.reason, error.message));
      if (error.statement.has_value()) std::fprintf(stderr, "  statement: %s\n", Printable(*error.statement).c_str());
      for (const std::string& step : error.chain) std::fprintf(stderr, "    %s\n", Printable(step).c_str());
    }
    if (total > errors.size()) std::fprintf(stderr, "... and %zu more errors\n", total - errors.size());
    return ExitStatusFor(status);
  };
  absl::StatusOr<std::string> text = ReadTextInput(path);
  if (!text.ok()) return fail(text.status());
  const absl::StatusOr<aoa::Request> request = aoa::ParseRequest(*std::move(text));
  if (!request.ok()) return fail(request.status());
  const absl::StatusOr<aoa::MappedState> mapped =
      aoa::BuildMapping(request->config, request->source, request->destination_span(), &errors, &total);
  if (!mapped.ok()) return fail(mapped.status());
  if (table) {
    ToStdout(ForTerminal(aoa::FormatReport(aoa::MakeReport(*mapped, request->destination_span()))));
  } else {
    aoa::WriteAnswer(*mapped, request->queries, ToStdout);
  }
  if (std::fflush(stdout) != 0) {
    return ReportError(
        context, MakeError(Reason::kStorageError, absl::StrCat("cannot write the answer: ", std::strerror(errno))));
  }
  return kDone;
}

int Show(const CommandContext& context, const std::string& name, const aoa::ModelNumbers& numbers) {
  if (name.empty()) {
    if (context.json()) {
      nlohmann::ordered_json list = nlohmann::ordered_json::array();
      for (const aoa::ReadyMapping& mapping : aoa::ReadyMappings()) {
        list.push_back({{"name", mapping.name}, {"description", mapping.description}});
      }
      std::printf("%s\n", JsonText(nlohmann::ordered_json{{"mappings", list}}).c_str());
      return kDone;
    }
    for (const aoa::ReadyMapping& mapping : aoa::ReadyMappings()) {
      std::printf("%-18s %s\n", std::string(mapping.name).c_str(), std::string(mapping.description).c_str());
    }
    return kDone;
  }
  const absl::StatusOr<std::string> text = aoa::ReadyMappingText(name, numbers);
  if (!text.ok()) return ReportError(context, text.status());
  if (context.json()) {
    std::printf("%s\n", JsonText(nlohmann::ordered_json{{"aoa_statements", aoa::StatementsOf(*text)}}).c_str());
  } else {
    std::fputs(text->c_str(), stdout);
  }
  return kDone;
}

}  // namespace

void AddAoaCommand(Command app, CommandContext& context) {
  Command aoa = app.AddCommand("aoa", "The mapping language: load under other names, layouts and dtypes");
  aoa.RequireCommand();
  auto path = std::make_shared<std::string>();
  Command resolve = aoa.AddCommand(
      "resolve", "Runs a mapping on descriptions of tensors, and prints as JSON where each target tensor comes from");
  resolve.AddOption("FILE", *path, "The request as JSON; - reads standard input").Required();
  resolve.Footer(
      "Examples:\n"
      "  cairn aoa resolve request.json > answer.json\n"
      "  cairn aoa --format=table resolve request.json      # what the mapping does, for people\n"
      "Request: {\"aoa_config\": {\"aoa_statements\": [..]}, \"source\": [{\"key\", \"local_shape\", "
      "\"global_shape\",\n"
      "\"global_offset\", \"dtype\"}..], \"destination\": [..] or null, \"queries\": [..]}");
  // This command is for scripts, so it prints JSON by default.
  resolve.Action([&context, path] { context.exit_status = Resolve(context, *path, context.table_asked()); });

  auto name = std::make_shared<std::string>();
  auto numbers = std::make_shared<aoa::ModelNumbers>();
  Command show = aoa.AddCommand("show", "Prints a ready-made mapping, or lists them");
  show.AddOption("NAME", *name, "The mapping's name; without it all are listed");
  show.AddOption("--num-heads", numbers->heads, "Query heads of the model");
  show.AddOption("--num-kv-heads", numbers->kv_heads, "KV heads of the model");
  show.AddOption("--q-lora-rank", numbers->q_lora_rank, "Rows of q_a_proj (DeepSeek)");
  show.AddOption("--kv-lora-rank", numbers->kv_lora_rank, "Rows of kv_a_proj_with_mqa (DeepSeek)");
  show.Footer(
      "Examples:\n"
      "  cairn aoa show\n"
      "  cairn aoa show llama --num-heads 64 --num-kv-heads 8\n"
      "  cairn aoa --format=json show deepseek-v3 > mapping.json");
  show.Action([&context, name, numbers] { context.exit_status = Show(context, *name, *numbers); });
}

}  // namespace cairn::cli

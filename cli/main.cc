// The `cairn` command.
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "cli/aoa_command.h"
#include "cli/command.h"
#include "cli/corpus_command.h"
#include "cli/export_command.h"
#include "cli/list_command.h"
#include "cli/plan_command.h"
#include "cli/save_command.h"
#include "cli/status_command.h"
#include "cli/up_command.h"
#include "cli/verify_command.h"
#include "common/rpc/endpoint.h"

namespace {

using namespace cairn::cli;  // NOLINT: the whole file is this program

std::string NameOf(const CLI::App& command) {
  const CLI::App* parent = command.get_parent();
  return parent == nullptr ? command.get_name() : NameOf(*parent) + " " + command.get_name();
}

// As every error: what is wrong, and the next action.
int ReportUsage(const CLI::App& app, const CLI::ParseError& error) {
  const CLI::App* command = &app;
  while (!command->get_subcommands().empty()) command = command->get_subcommands().back();
  std::string message = error.what();
  const std::vector<std::string> rest = app.remaining(true);
  if (command->get_require_subcommand_min() > 0) {
    if (rest.empty()) {
      std::fputs(command->help().c_str(), stderr);
      return kUsage;
    }
    message = "unknown command '" + rest.front() + "'; there are:";
    for (const CLI::App* known : command->get_subcommands([](const CLI::App*) { return true; })) {
      message += " " + known->get_name();
    }
  }
  std::fprintf(stderr, "error: BAD_REQUEST: %s\n  next: See `%s --help`.\n", message.c_str(), NameOf(*command).c_str());
  return kUsage;
}

}  // namespace

int main(int argc, char** argv) {
  CommandContext context;
  CLI::App app("Checkpoints of distributed training, coordinated: save, inspect, verify and load them.", "cairn");
  app.require_subcommand(1);
  app.fallthrough();
  app.set_version_flag("--version", std::string(cairn::kVersion));
  app.add_option("--format", context.format, "Output: a table for people, or JSON with stable keys")
      ->check(CLI::IsMember({"table", "json"}))
      ->capture_default_str();
  app.add_option("--coordinator", context.coordinator, "Address of the coordinator, host:port")
      ->envname("CAIRN_COORDINATOR");
  app.add_option("--token-file", context.token_file, "File with the token that the coordinator asks for")
      ->envname("CAIRN_TOKEN_FILE");
  AddUpCommand(app, context);
  AddSaveCommand(app, context);
  AddStatusCommand(app, context);
  AddListCommand(app, context);
  AddShowCommand(app, context);
  AddVerifyCommand(app, context);
  AddExportCommand(app, context);
  AddPlanCommand(app, context);
  AddAoaCommand(app, context);
  AddCorpusCommand(app, context);

  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return error.get_exit_code() == 0 ? app.exit(error) : ReportUsage(app, error);
  }
  return context.exit_status;
}

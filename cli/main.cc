// The `cairn` command.
#include <cstdlib>

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

int main(int argc, char** argv) {
  using namespace cairn::cli;  // NOLINT: the whole file is this program
  CommandContext context;
  CLI::App app("Checkpoints of distributed training, coordinated: save, inspect, verify and load them.", "cairn");
  app.require_subcommand(1);
  app.fallthrough();
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
    const int status = app.exit(error);
    return status == 0 ? kDone : kUsage;
  }
  return context.exit_status;
}

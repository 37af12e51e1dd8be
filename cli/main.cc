// The `cairn` command.
#include <optional>
#include <string>
#include <vector>

#include "cli/base/command.h"
#include "cli/commands/commands.h"
#include "cli/commands/help_command.h"
#include "cli/commands/jobs_command.h"
#include "cli/corpus/corpus_command.h"
#include "cli/local/missing_name.h"
#include "cli/local/run_directory.h"
#include "common/base/version_text.h"
#include "common/resources/memory.h"
#include "common/rpc/address.h"

int main(int argc, char** argv) {
  using namespace cairn::cli;  // NOLINT: the whole file is this program
  CommandContext context;
  cairn::ArgumentParser app("cairn",
                            "Checkpoints of distributed training, coordinated: save, inspect, verify and load them.",
                            cairn::VersionText("cairn"));
  app.RequireCommand();
  app.AddOption("--format", context.format,
                "Output: a table for people, or JSON with stable keys (default: table; of "
                "aoa and plan: JSON)")
      .OneOf({"table", "json"});
  app.AddOption("--coordinator", context.coordinator, "Address of the coordinator, host:port")
      .FromEnvironment("CAIRN_COORDINATOR")
      .Fits(cairn::HostPortLike("127.0.0.1:7420"));
  cairn::Argument token_file =
      app.AddOption("--token-file", context.token_file,
                    "File with the coordinator's token (default: searched for by the coordinator's address in this "
                    "user's runtime directory)")
          .FromEnvironment("CAIRN_TOKEN_FILE");
  app.AddFlag("--insecure", context.insecure, "Use no token; with `up`: start services that need none")
      .FromEnvironment("CAIRN_INSECURE")
      .Excludes(token_file);
  std::vector<std::string> training;
  app.TakeRest(AddRunCommand(app, context, training), training);
  AddUpCommand(app, context);
  AddDownCommand(app, context);
  AddAgentsCommand(app, context);
  AddSaveCommand(app, context);
  AddCancelCommand(app, context);
  AddStatusCommand(app, context);
  AddJobsCommand(app, context);
  AddHistoryCommand(app, context);
  AddTimelineCommand(app, context);
  AddServeCommand(app, context);
  AddListCommand(app, context);
  AddShowCommand(app, context);
  AddVerifyCommand(app, context);
  AddRepairCommand(app, context);
  AddDeleteCommand(app, context);
  AddPruneCommand(app, context);
  AddRetentionCommand(app, context);
  AddPinCommands(app, context);
  AddTagCommands(app, context);
  AddDiffCommand(app, context);
  AddExportCommand(app, context);
  AddDoctorCommand(app, context);
  AddImportCommand(app, context);
  AddPlanCommand(app, context);
  AddAoaCommand(app, context);
  AddCorpusCommand(app, context);
  AddCompletionCommand(app, context);
  AddHelpCommand(app);

  app.ExplainMissing([&context](const std::string& argument) {
    return WhereNamesAre(argument, context.coordinator, RunDirectory::RunningCoordinators());
  });

  const absl::Status status = cairn::WithMemory("to do this", [&] {
    const std::vector<const char*> words = WithHelpOption(argc, argv);
    if (const auto ended = app.Parse(static_cast<int>(words.size()), words.data())) context.exit_status = *ended;
    return absl::OkStatus();
  });
  if (!status.ok()) context.exit_status = ReportError(context, status);
  return EndOutput(context, context.exit_status);
}

// The commands of `cairn`. Each function adds one command, or a few that belong together, to the command line. The
// command is in the file of that name, and its help text says what it does.
#ifndef CAIRN_CLI_COMMANDS_COMMANDS_H_
#define CAIRN_CLI_COMMANDS_COMMANDS_H_

#include <string>
#include <vector>

#include "cli/base/command.h"

namespace cairn::cli {

// `app` and `context` must outlive the parser.
void AddAgentsCommand(Command app, CommandContext& context);
void AddAoaCommand(Command app, CommandContext& context);
void AddCancelCommand(Command app, CommandContext& context);
void AddDeleteCommand(Command app, CommandContext& context);
void AddDiffCommand(Command app, CommandContext& context);
void AddDoctorCommand(Command app, CommandContext& context);
void AddDownCommand(Command app, CommandContext& context);
void AddExportCommand(Command app, CommandContext& context);
void AddHistoryCommand(Command app, CommandContext& context);
void AddImportCommand(Command app, CommandContext& context);
void AddListCommand(Command app, CommandContext& context);
void AddShowCommand(Command app, CommandContext& context);
void AddPlanCommand(Command app, CommandContext& context);
void AddRepairCommand(Command app, CommandContext& context);
void AddPruneCommand(Command app, CommandContext& context);
void AddRetentionCommand(Command app, CommandContext& context);
void AddPinCommands(Command app, CommandContext& context);
void AddSaveCommand(Command app, CommandContext& context);
void AddServeCommand(Command app, CommandContext& context);
void AddStatusCommand(Command app, CommandContext& context);
void AddTagCommands(Command app, CommandContext& context);
void AddTimelineCommand(Command app, CommandContext& context);
void AddUpCommand(Command app, CommandContext& context);
void AddVerifyCommand(Command app, CommandContext& context);

// The script describes all commands that `app` has when it parses. `app` must outlive the command.
void AddCompletionCommand(ArgumentParser& app, CommandContext& context);
// `training`: the words behind "--". The caller must have filled it when the command's action runs.
Command AddRunCommand(Command app, CommandContext& context, const std::vector<std::string>& training);

}  // namespace cairn::cli

#endif  // CAIRN_CLI_COMMANDS_COMMANDS_H_

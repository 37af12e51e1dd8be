// What all commands of `cairn` share: exit statuses, the form of errors, table or JSON.
//
// A command is one file `<name>_command.cc` with one function `void Add<Name>Command(Command parent, CommandContext&)`
// that declares its arguments and sets an action; main.cc lists them. An action leaves its exit status in the context.
#ifndef CAIRN_CLI_BASE_COMMAND_H_
#define CAIRN_CLI_BASE_COMMAND_H_

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "common/process/arguments.h"

namespace cairn::cli {

enum ExitStatus : int {
  kDone = 0,
  kFailed = 1,  // the operation failed
  kUsage = 2,
  kUnknown = 3,  // the outcome is unknown: unreachable or timed out
  kInterrupted = 130,
};

struct CommandContext {
  std::string format;       // --format: "table", "json", or empty for the command's default
  std::string coordinator;  // the coordinator's address: --coordinator or CAIRN_COORDINATOR
  std::string token_file;   // --token-file or CAIRN_TOKEN_FILE
  bool insecure = false;    // --insecure or CAIRN_INSECURE
  int exit_status = kDone;

  bool json() const { return format == "json"; }
  bool table_asked() const { return format == "table"; }
};

// Prints "error: REASON: text" and the next action to standard error, in colour on a terminal; with --format=json it
// prints a JSON object instead. Prints nothing for OK. Returns ExitStatusFor(status).
int ReportError(const CommandContext& context, const absl::Status& status);

// Returns the error with the job, step and root of the command line in its metadata, except those that it has already.
// So its next action shows them in place of JOB, STEP and ROOT, and the commands in it read the same root. `name`: a
// job, or JOB@STEP. If the error says that nothing was found, and `root` lies within another root, the next action
// names that root. If it says that this is no job's name, and it would be one in lower case, the next action says that.
absl::Status WithNames(const absl::Status& status, std::string_view name, std::string_view root = "");

// Returns the error with `next` as its next action. `status` has a reason.
absl::Status WithNext(const absl::Status& status, const std::string& next);

// Checks the name of a job as CheckJobName does: INVALID_ARGUMENT (BAD_JOB_NAME). For "JOB@STEP" the error says which
// command shows a step.
absl::Status CheckJobArgument(const std::string& text);

// Returns the JSON as text for scripts. The text is always UTF-8 (even if a name in it is not) and printable, because
// it may be shown on a terminal. It is one line if `indent` is -1.
std::string JsonText(const nlohmann::ordered_json& json, int indent = 2);

// Flushes standard output at the end of a command. Returns `exit_status`. If the command succeeded but its output could
// not be written completely, for example on a full disk, it prints an error and returns the error's exit status.
int EndOutput(const CommandContext& context, int exit_status);

// Returns the error as JSON for scripts: {"code", "reason", "message", "metadata"}.
nlohmann::ordered_json ErrorToJson(const absl::Status& status);

// Returns kDone for OK, kInterrupted for INTERRUPTED, kUnknown for a reason that leaves the outcome unknown, kUsage for
// an error about a missing option (metadata "option"), else kFailed.
int ExitStatusFor(const absl::Status& status);

}  // namespace cairn::cli

#endif  // CAIRN_CLI_BASE_COMMAND_H_

// Holds what all commands of `cairn` share: exit statuses, the form of errors, table or JSON.
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
  kFailed = 1,  // the operation failed; the answer is known
  kUsage = 2,
  kUnknown = 3,  // could not be reached or timed out; the answer is unknown
  kInterrupted = 130,
};

struct CommandContext {
  std::string format;       // --format: "table", "json", or empty for what the command prints by default
  std::string coordinator;  // its address: --coordinator or CAIRN_COORDINATOR
  std::string token_file;   // --token-file or CAIRN_TOKEN_FILE
  bool insecure = false;    // --insecure or CAIRN_INSECURE
  int exit_status = kDone;

  bool json() const { return format == "json"; }
  bool table_asked() const { return format == "table"; }
};

// Prints "error: REASON: text" and the next action on standard error, in colour on a terminal; with --format=json it
// prints a JSON object. It prints nothing for OK. Returns the exit status that fits the error's reason.
int ReportError(const CommandContext& context, const absl::Status& status);

// Returns the error with the job, step and root that the command line names, where it does not name them itself: its
// next action then has them in place of JOB, STEP and ROOT, and its commands read the same root. `name`: a job, or
// JOB@STEP. If nothing is found there, and the root lies within another one, the next action says which.
absl::Status WithNames(const absl::Status& status, std::string_view name, std::string_view root = "");

// Checks the name of a job as CheckJobName does: INVALID_ARGUMENT (BAD_JOB_NAME). For "JOB@STEP" the error says which
// command shows a step.
absl::Status CheckJobArgument(const std::string& text);

// Returns the JSON as text for scripts: always UTF-8, also where names are not, and printable, because it may reach a
// terminal. In one line if `indent` is -1.
std::string JsonText(const nlohmann::ordered_json& json, int indent = 2);

// Ends the output of a command. Returns `exit_status`; kFailed, and says why, if a command that was done could not
// write all that it had to say, as on a full disk.
int EndOutput(const CommandContext& context, int exit_status);

// Returns the error as scripts see it: {"code", "reason", "message", "metadata"}.
nlohmann::ordered_json ErrorToJson(const absl::Status& status);

// Returns kUnknown for reasons that leave the outcome open, kUsage for an error that names a missing option (metadata
// `option`), else kFailed; kDone for OK.
int ExitStatusFor(const absl::Status& status);

}  // namespace cairn::cli

#endif  // CAIRN_CLI_BASE_COMMAND_H_

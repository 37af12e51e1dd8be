// What every command of `cairn` shares: exit statuses, the form of errors, table or JSON.
//
// A command is one file `<name>_command.cc` with one function `void Add<Name>Command(CLI::App& app, CommandContext&)`
// that declares its arguments and sets a callback; main.cc lists them. A callback leaves its exit status in the
// context.
#ifndef CAIRN_CLI_COMMAND_H_
#define CAIRN_CLI_COMMAND_H_

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/status/status.h"

namespace cairn::cli {

enum ExitStatus : int {
  kDone = 0,
  kFailed = 1,  // the operation failed; the answer is known
  kUsage = 2,
  kUnknown = 3,  // could not be reached or timed out; the answer is unknown
  kInterrupted = 130,
};

struct CommandContext {
  std::string format = "table";  // or "json"
  std::string coordinator;       // address; --coordinator or CAIRN_COORDINATOR
  int exit_status = kDone;

  bool json() const { return format == "json"; }
};

// "error: REASON: text" and the next action on standard error (a JSON object with --format=json), colour on a
// terminal. Returns the exit status that fits the error's reason.
int ReportError(const CommandContext& context, const absl::Status& status);

// {"code", "reason", "message", "metadata"}: the error as scripts see it.
nlohmann::ordered_json ErrorToJson(const absl::Status& status);

// The exit status for `status`: kUnknown for reasons that leave the outcome open, else kFailed; kDone for OK.
int ExitStatusFor(const absl::Status& status);

}  // namespace cairn::cli

#endif  // CAIRN_CLI_COMMAND_H_

// Reports the errors of `cairn corpus`.
#ifndef CAIRN_CLI_CORPUS_CORPUS_ERROR_H_
#define CAIRN_CLI_CORPUS_CORPUS_ERROR_H_

#include <functional>

#include "absl/status/status.h"
#include "cli/base/command.h"

namespace cairn::cli {

// Returns the error with a next action for these commands. The table of reasons advises for checkpoints, with flags and
// commands that these have not; an error with advice of its own keeps that.
absl::Status WithCorpusAdvice(const absl::Status& status);

// Does the same as ReportError, for WithCorpusAdvice(status).
int ReportCorpusError(const CommandContext& context, const absl::Status& status);

// Runs a command: reports the error of `work`, and leaves its exit status in the context. That the system refuses
// memory is such an error too.
void RunCorpusCommand(CommandContext& context, const std::function<absl::Status()>& work);

}  // namespace cairn::cli

#endif  // CAIRN_CLI_CORPUS_CORPUS_ERROR_H_

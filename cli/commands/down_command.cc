#include <csignal>
#include <cstdio>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "cli/base/interrupt.h"
#include "cli/commands/commands.h"
#include "cli/local/run_directory.h"
#include "common/base/clock.h"
#include "common/format/checkpoint_path.h"
#include "common/process/quantity.h"
#include "common/status/reason.h"
#include "common/status/status.h"

namespace cairn::cli {
namespace {

struct Arguments {
  std::string job = kDefaultJob;
  std::string run_directory;
  std::string timeout = "3m";
};

absl::Status Down(const Arguments& arguments) {
  CAIRN_RETURN_IF_ERROR(CheckJobName(arguments.job));
  CAIRN_ASSIGN_OR_RETURN(const absl::Duration timeout, ParseDuration(arguments.timeout));
  const std::string path =
      arguments.run_directory.empty() ? RunDirectory::PathOf(arguments.job) : arguments.run_directory;
  const auto holder = RunDirectory::HolderOf(path);
  if (!holder.has_value() || *holder <= 0) {
    return MakeError(Reason::kJobNotFound,
                     absl::StrCat("no `cairn up` of job ", arguments.job, " runs here: nobody holds ", path),
                     {{"job", arguments.job},
                      {"next", "Give the --job (and --run-directory) of `cairn up`, and run this as the same user."}});
  }
  InterruptFlag();  // from now on, Ctrl-C ends the wait
  if (kill(*holder, SIGTERM) != 0) {
    return MakeError(Reason::kPeerUid, absl::StrCat("process ", *holder, " of another user holds ", path));
  }
  const absl::Time deadline = Clock::Real().SteadyNow() + timeout;
  while (RunDirectory::HolderOf(path) == holder) {
    if (InterruptFlag()) {
      return MakeError(Reason::kInterrupted, absl::StrCat("interrupted; process ", *holder, " continues to end"));
    }
    if (Clock::Real().SteadyNow() >= deadline) {
      return MakeError(Reason::kTimedOut,
                       absl::StrCat("process ", *holder, " has not ended within ", arguments.timeout),
                       {{"next", absl::StrCat("It waits for staged saves; its logs are in ", path, ".")}});
    }
    absl::SleepFor(absl::Milliseconds(20));
  }
  return absl::OkStatus();
}

}  // namespace

void AddDownCommand(Command app, CommandContext& context) {
  auto arguments = std::make_shared<Arguments>();
  Command command = app.AddCommand("down", "Ends the processes of `cairn up` on this machine, after staged saves");
  command.AddOption("--job", arguments->job, "The job's name").FromEnvironment("CAIRN_JOB").ShowDefault();
  command.AddOption("--run-directory", arguments->run_directory, "The same value as for `cairn up`");
  command.AddOption("--timeout", arguments->timeout, "How long staged saves may take").ShowDefault();
  command.Footer(
      "Example:\n  cairn down --job demo\nExit status: 0 all processes have ended, 1 none was running, 3 not all "
      "have ended in time, 130 interrupted.");
  command.Action([arguments, &context] { context.exit_status = ReportError(context, Down(*arguments)); });
}

}  // namespace cairn::cli

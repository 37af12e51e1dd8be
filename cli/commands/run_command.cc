#include <algorithm>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cli/base/interrupt.h"
#include "cli/base/own_name.h"
#include "cli/client/mirror_watch.h"
#include "cli/client/removals.h"
#include "cli/commands/commands.h"
#include "cli/local/foreground_process.h"
#include "cli/local/launcher_ranks.h"
#include "cli/local/local_cluster.h"
#include "common/base/clock.h"
#include "common/process/quantity.h"
#include "common/resources/thread.h"
#include "common/status/reason.h"
#include "common/status/status.h"

namespace cairn::cli {
namespace {

constexpr absl::Duration kTendInterval = absl::Milliseconds(200);
constexpr absl::Duration kEndOfCoordinator = absl::Seconds(5);
// The exit status that shells use for a program that cannot be started.
constexpr int kNoProgram = 127;
constexpr int kEndedBySignal = 128;

struct Arguments {
  LocalClusterOptions cluster;
  std::optional<int64_t> ranks;
  std::string drain_timeout = "10m";
};

// Returns whether the command is `cairn` itself, which asks the coordinator something and trains nothing.
bool IsCairn(const std::vector<std::string>& command) {
  const size_t slash = command[0].rfind('/');
  return command[0].substr(slash == std::string::npos ? 0 : slash + 1) == "cairn";
}

// Returns whether the command is a Cairn command that deletes checkpoints. Then it has failed if files remain.
bool DeletesCheckpoints(const std::vector<std::string>& command) {
  return IsCairn(command) && (std::find(command.begin(), command.end(), "prune") != command.end() ||
                              std::find(command.begin(), command.end(), "delete") != command.end());
}

// Reports that the command cannot be started. Returns the exit status.
int ReportNoProgram(const CommandContext& context, const absl::Status& status) {
  ReportError(context,
              WithMetadata(status, {{"next", "Give the path of a program, or the name of one that is on PATH."}}));
  return kNoProgram;
}

// Warns if this machine's name has no address. The look-up may take long, so the training does not wait for it.
void NoteOwnName() {
  auto thread = StartThread("to look up this machine's name", [] {
    const OwnName own = LookUpOwnName();
    if (own.has_address) return;
    std::fprintf(stderr, "cairn: %s\n  next: %s\n", TextOfNoAddress(own.name).c_str(),
                 NextOfNoAddress(own.name).c_str());
  });
  if (thread.ok()) thread->detach();
}

// Returns the exit status of the training command.
absl::StatusOr<int> Run(CommandContext& context, Arguments& arguments, const std::vector<std::string>& training) {
  if (training.empty()) {
    return MakeError(Reason::kBadRequest,
                     "no training command: it must follow --, as in `cairn run --root DIR -- torchrun train.py`",
                     {{"next", "Write -- and the command at the end. `cairn up` starts the same without a command."}});
  }
  CAIRN_ASSIGN_OR_RETURN(const absl::Duration drain_timeout, ParseDuration(arguments.drain_timeout));
  if (arguments.ranks.has_value()) {
    arguments.cluster.ranks = static_cast<int>(*arguments.ranks);
  } else {
    CAIRN_ASSIGN_OR_RETURN(arguments.cluster.ranks, RanksOfLauncher(training));
  }
  // A mistyped command leaves no root behind.
  if (const absl::Status found = FindProgram(training[0]); !found.ok()) return ReportNoProgram(context, found);
  InterruptFlag();  // from now on, Ctrl-C ends the start
  LocalCluster cluster(arguments.cluster, context);
  if (const absl::Status started = cluster.Start(); !started.ok()) {
    return WithMetadata(started, {{"job", arguments.cluster.job}, {"root", arguments.cluster.root}});
  }
  std::fprintf(stderr, "cairn: job %s below %s, %d %s here, coordinator %s, logs in %s\n",
               arguments.cluster.job.c_str(), arguments.cluster.root.c_str(), arguments.cluster.ranks,
               arguments.cluster.ranks == 1 ? "rank" : "ranks", cluster.coordinator_address().c_str(),
               cluster.logs().c_str());
  if (const std::string note = IsCairn(training) ? "" : cluster.NoteOnStart(); !note.empty()) {
    std::fprintf(stderr, "cairn: %s\n", note.c_str());
  }
  if (MeetsByOwnName(training)) NoteOwnName();
  CommandContext asking = context;
  asking.coordinator = cluster.coordinator_address();
  std::optional<MirrorWatch> mirror;
  if (cluster.HasCoordinator() && !IsCairn(training)) mirror.emplace(asking, arguments.cluster.job);
  auto process = ForegroundProcess::Start(training, cluster.Environment());
  if (!process.ok()) return ReportNoProgram(context, process.status());
  std::optional<int> status;
  while (!status.has_value()) {
    status = process->Follow(kTendInterval);
    cluster.ReapOrphans(process->pid());
    for (const std::string& said : cluster.Tend()) std::fprintf(stderr, "cairn: %s\n", said.c_str());
    for (const std::string& said : mirror.has_value() ? mirror->TakeNews() : std::vector<std::string>()) {
      std::fprintf(stderr, "cairn: %s\n", said.c_str());
    }
  }
  // The agents finish staged saves without the trainers.
  absl::Time deadline = Clock::Real().SteadyNow() + drain_timeout;
  bool gave_up = false;
  const auto give_up = [&] {
    gave_up = gave_up || process->Interrupted() || Clock::Real().SteadyNow() >= deadline;
    return gave_up;
  };
  cluster.DrainAgents(give_up);
  const bool saves_left = gave_up;
  // After a signal the user does not want to wait for removals, which the next coordinator can do too.
  if (cluster.HasCoordinator() && !gave_up && *status < kEndedBySignal) {
    if (const std::string lacks = mirror.has_value() ? mirror->AtEnd() : ""; !lacks.empty()) {
      std::fprintf(stderr, "cairn: %s\n", lacks.c_str());
    }
    const absl::Status removed = AwaitRemovals(
        asking, give_up, [](const std::string& line) { std::fprintf(stderr, "cairn: %s\n", line.c_str()); });
    if (!removed.ok()) {
      ReportError(context, removed);
      // For a training this is no failure.
      if (status == kDone && DeletesCheckpoints(training)) status = kFailed;
    }
    // No save is left, and the coordinator ends soon. So it gets its time even after the wait was given up.
    gave_up = false;
    deadline = std::max(deadline, Clock::Real().SteadyNow() + kEndOfCoordinator);
  }
  mirror.reset();
  cluster.DrainCoordinator(give_up);
  if (saves_left) {
    std::fprintf(stderr, "cairn: ended before all staged saves had their outcome\n");
  } else if (gave_up) {
    std::fprintf(stderr, "cairn: the coordinator did not end in time\n");
  }
  return *status;
}

}  // namespace

Command AddRunCommand(Command app, CommandContext& context, const std::vector<std::string>& training) {
  auto arguments = std::make_shared<Arguments>();
  Command command = app.AddCommand(
      "run", "Runs a training command, for example torchrun, together with a coordinator and the agents of its ranks");
  AddLocalClusterOptions(command, arguments->cluster);
  command
      .AddOption("--ranks", arguments->ranks,
                 "Number of ranks on this machine (default: torchrun's --nproc-per-node, else 1)")
      .Between(1, 4096);
  command
      .AddOption("--drain-timeout", arguments->drain_timeout,
                 "How long to wait, after the training command has ended, for staged saves\n"
                 "and for the removal of deleted checkpoints' files")
      .ShowDefault();
  command.Footer(
      "Examples:\n"
      "  cairn run --root /checkpoints -- torchrun --nproc-per-node 4 train.py\n"
      "  cairn run --root /checkpoints --ranks 2 --nodes 2 --node-rank 0 --host 10.0.0.1 \\\n"
      "      --coordinator 10.0.0.1:7420 --token-file /shared/token -- torchrun --nnodes 2 ... train.py\n"
      "The command finds its agents by CAIRN_AGENT, which it gets in its environment. Signals are handed on to it. "
      "What\n"
      "Cairn started beside it is started again if it ends, and ends after the command. Logs stay in the directory "
      "that\n"
      "is printed.\n"
      "Exit status: that of the training command (128 + N if signal N ended it), 127 if it cannot be started; 1, 2, 3\n"
      "or 130 if Cairn's own processes did not start; 1 if the command is `cairn prune` or `cairn delete`, and files "
      "of\n"
      "what it deleted could not be removed.");
  command.Action([arguments, &context, &training] {
    const absl::StatusOr<int> status = Run(context, *arguments, training);
    context.exit_status = status.ok() ? *status : ReportError(context, status.status());
  });
  return command;
}

}  // namespace cairn::cli

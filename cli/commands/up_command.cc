#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "cli/base/interrupt.h"
#include "cli/base/terminal.h"
#include "cli/client/mirror_watch.h"
#include "cli/commands/commands.h"
#include "cli/local/local_cluster.h"
#include "common/base/clock.h"
#include "common/file/errno_error.h"
#include "common/status/reason.h"
#include "common/status/status.h"

namespace cairn::cli {
namespace {

constexpr absl::Duration kDrainTimeout = absl::Minutes(2);

struct Arguments {
  LocalClusterOptions cluster;
  std::string transport;
  bool detach = false;
};

std::string HowToEnd(const LocalClusterOptions& cluster) {
  if (cluster.run_directory.empty()) return absl::StrCat("cairn down --job ", cluster.job);
  return absl::StrCat("cairn down --job ", cluster.job, " --run-directory ", cluster.run_directory);
}

void Print(const CommandContext& context, const Arguments& arguments, const LocalCluster& cluster) {
  if (context.json()) {
    nlohmann::ordered_json json = {{"coordinator", cluster.coordinator_address()},
                                   {"job", arguments.cluster.job},
                                   {"root", arguments.cluster.root},
                                   {"agents", cluster.agents()},
                                   {"agent", cluster.agent_pattern()},
                                   {"logs", cluster.logs()}};
    std::printf("%s\n", JsonText(json).c_str());
  } else {
    for (const auto& [name, value] : cluster.Environment())
      std::printf("export %s='%s'\n", name.c_str(), value.c_str());
    std::fprintf(stderr, "%s logs in %s; job %s below %s; %s\n", Coloured(stderr, Colour::kGreen, "up:").c_str(),
                 cluster.logs().c_str(), arguments.cluster.job.c_str(), arguments.cluster.root.c_str(),
                 arguments.detach ? absl::StrCat("`", HowToEnd(arguments.cluster), "` ends it").c_str()
                                  : "Ctrl-C ends it after staged saves");
  }
  std::fflush(stdout);
  if (const std::string note = cluster.NoteOnStart(); !note.empty()) std::fprintf(stderr, "%s\n", note.c_str());
}

// Waits for Ctrl-C or `cairn down`, and meanwhile restarts processes that end.
void Supervise(LocalCluster& cluster, MirrorWatch* mirror) {
  while (!InterruptFlag()) {
    for (const std::string& said : cluster.Tend()) std::fprintf(stderr, "%s\n", said.c_str());
    for (const std::string& said : mirror != nullptr ? mirror->TakeNews() : std::vector<std::string>()) {
      std::fprintf(stderr, "%s\n", said.c_str());
    }
    absl::SleepFor(absl::Milliseconds(100));
  }
}

void Drain(LocalCluster& cluster) {
  std::fprintf(stderr, "draining ...\n");
  const absl::Time deadline = Clock::Real().SteadyNow() + kDrainTimeout;
  cluster.Drain([&] { return Clock::Real().SteadyNow() >= deadline; });
}

// Returns the agents' flags for a transport.
std::vector<std::string> FlagsOfTransport(const std::string& transport) {
  if (transport == "host") return {"--nccl=never", "--nccl-saves=never"};
  if (transport == "nccl") return {"--shared-memory=never", "--nccl=require", "--nccl-saves=auto"};
  return {};
}

// `on_started` is called when everything serves.
absl::Status Up(const CommandContext& context, const Arguments& arguments,
                const std::function<void(const LocalCluster&)>& on_started) {
  InterruptFlag();  // from now on, Ctrl-C ends the cluster in order
  LocalClusterOptions options = arguments.cluster;
  for (std::string& flag : FlagsOfTransport(arguments.transport)) options.agent_flags.push_back(std::move(flag));
  LocalCluster cluster(std::move(options), context);
  if (const absl::Status started = cluster.Start(); !started.ok()) {
    return WithMetadata(started, {{"job", arguments.cluster.job}, {"root", arguments.cluster.root}});
  }
  Print(context, arguments, cluster);
  on_started(cluster);
  {
    std::optional<MirrorWatch> mirror;
    CommandContext asking = context;
    asking.coordinator = cluster.coordinator_address();
    if (cluster.HasCoordinator()) mirror.emplace(asking, arguments.cluster.job);
    Supervise(cluster, mirror.has_value() ? &*mirror : nullptr);
  }
  Drain(cluster);
  return absl::OkStatus();
}

// A detached child sends this behind its output when everything serves.
constexpr char kStarted = '\0';

// Copies what the child prints until it serves or has ended. Returns whether it serves.
bool FollowStart(int output) {
  char bytes[4096];
  while (true) {
    const ssize_t got = ::read(output, bytes, sizeof(bytes));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    const bool started = bytes[got - 1] == kStarted;
    std::fwrite(bytes, 1, static_cast<size_t>(got) - (started ? 1 : 0), stdout);
    std::fflush(stdout);
    if (started) return true;
  }
}

// Leaves the terminal: from now on, the output of this process goes to a log beside those of its services.
void LeaveTerminal(const LocalCluster& cluster) {
  const std::string log = cluster.logs() + "/up.log";
  const int log_fd = ::open(log.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  const int null_fd = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  (void)!::write(STDOUT_FILENO, &kStarted, 1);
  if (null_fd < 0) return;
  dup2(null_fd, STDIN_FILENO);
  dup2(null_fd, STDOUT_FILENO);
  dup2(log_fd >= 0 ? log_fd : null_fd, STDERR_FILENO);
}

// Calls Up in a child process, which continues when this one has ended. Returns the exit status.
int UpDetached(const CommandContext& context, const Arguments& arguments) {
  int output[2];
  if (pipe2(output, O_CLOEXEC) != 0) return ReportError(context, ErrnoError(errno, "pipe", "of a process"));
  const pid_t child = fork();
  if (child < 0) return ReportError(context, ErrnoError(errno, "fork", "cairn up"));
  if (child == 0) {
    setsid();
    dup2(output[1], STDOUT_FILENO);
    ::close(output[0]);
    ::close(output[1]);
    const int status = ReportError(context, Up(context, arguments, LeaveTerminal));
    std::fflush(nullptr);
    _exit(status);
  }
  ::close(output[1]);
  const bool started = FollowStart(output[0]);
  ::close(output[0]);
  if (started) return kDone;
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : static_cast<int>(kFailed);
}

}  // namespace

void AddUpCommand(Command app, CommandContext& context) {
  auto arguments = std::make_shared<Arguments>();
  Command command =
      app.AddCommand("up", "Runs a coordinator and N agents here until Ctrl-C; prints the environment for trainers");
  command.AddOption("--ranks", arguments->cluster.ranks, "Number of ranks on this machine").Required().Between(1, 4096);
  AddLocalClusterOptions(command, arguments->cluster);
  command
      .AddOption("--transport", arguments->transport,
                 "How agents exchange bytes: host (never over NCCL), or nccl (even if ranks could share memory; a load "
                 "fails if NCCL fails). Default: shared memory if possible, else as the agents' --nccl says")
      .OneOf({"host", "nccl"});
  command.AddFlag("--detach", arguments->detach, "Return when all processes serve; they run until `cairn down`");
  command.Footer(
      "Examples:\n"
      "  cairn up --ranks 4 --root /checkpoints --job demo\n"
      "  eval \"$(cairn up --ranks 4 --root /checkpoints --detach)\"; torchrun --nproc-per-node 4 train.py; cairn "
      "down\n"
      "A process that ends is started again. Logs stay in the directory that the command prints.\n"
      "Exit status: 0 ended by Ctrl-C, 1 one of them did not start, 130 interrupted before all were up.");
  command.Action([arguments, &context] {
    context.exit_status = arguments->detach ? UpDetached(context, *arguments)
                                            : ReportError(context, Up(context, *arguments, [](const LocalCluster&) {}));
    // A local service that cannot be reached has ended, so the outcome is known.
    if (context.exit_status == kUnknown) context.exit_status = kFailed;
  });
}

}  // namespace cairn::cli

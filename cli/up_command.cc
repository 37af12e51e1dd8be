#include "cli/up_command.h"

#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "cli/child_process.h"
#include "cli/interrupt.h"
#include "cli/terminal.h"
#include "common/file/errno_error.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "common/storage/checkpoint_path.h"

namespace cairn::cli {
namespace {

constexpr absl::Duration kStartTimeout = absl::Seconds(30);
constexpr absl::Duration kDrainTimeout = absl::Minutes(2);

struct Arguments {
  int ranks = 1;
  std::string root;
  std::string job = "demo";
  std::string transport = "host";
  std::vector<std::string> coordinator_flags;
  std::vector<std::string> agent_flags;
};

// Returns the path of a service's program, which stands beside this one.
absl::StatusOr<std::string> Program(const std::string& name) {
  std::error_code error;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", error);
  const std::string path = (self.parent_path() / name).string();
  if (error || access(path.c_str(), X_OK) != 0) return ErrnoError(ENOENT, "start", path);
  return path;
}

// A directory that only this user can use, for sockets, address files and logs. It is removed at the end; after a
// failure its logs stay.
class RunDirectory {
 public:
  static absl::StatusOr<std::unique_ptr<RunDirectory>> Make() {
    const char* base = std::getenv("XDG_RUNTIME_DIR");
    std::string pattern = absl::StrCat(base != nullptr && access(base, W_OK) == 0 ? base : "/tmp", "/cairn-up-XXXXXX");
    if (mkdtemp(pattern.data()) == nullptr) return ErrnoError(errno, "mkdtemp", pattern);
    return std::unique_ptr<RunDirectory>(new RunDirectory(pattern));
  }
  ~RunDirectory() {
    std::error_code ignored;
    if (!keep_) std::filesystem::remove_all(path_, ignored);
  }
  const std::string& path() const { return path_; }
  void Keep() { keep_ = true; }

 private:
  explicit RunDirectory(std::string path) : path_(std::move(path)) {}
  const std::string path_;
  bool keep_ = false;
};

void AddTokenFlags(const CommandContext& context, std::vector<std::string>& command) {
  if (!context.token_file.empty()) command.insert(command.end(), {"--token-file", context.token_file});
  if (context.insecure) command.push_back("--insecure");
}

class LocalCluster {
 public:
  LocalCluster(const Arguments& arguments, const std::string& run) : arguments_(arguments), run_(run) {}

  absl::Status Start(const CommandContext& context) {
    CAIRN_ASSIGN_OR_RETURN(const std::string coordinator, Program("cairn-coordinator"));
    CAIRN_ASSIGN_OR_RETURN(const std::string agent, Program("cairn-agent"));
    std::vector<std::string> command = {coordinator,
                                        "--listen",
                                        "127.0.0.1:0",
                                        "--root",
                                        arguments_.root,
                                        "--address-file",
                                        run_ + "/coordinator.address"};
    AddTokenFlags(context, command);
    command.insert(command.end(), arguments_.coordinator_flags.begin(), arguments_.coordinator_flags.end());
    CAIRN_RETURN_IF_ERROR(Launch(command, "coordinator"));
    CAIRN_ASSIGN_OR_RETURN(coordinator_address_,
                           AwaitAddress(children_[0], run_ + "/coordinator.address", NameOf(0), kStartTimeout));
    for (int rank = 0; rank < arguments_.ranks; ++rank) {
      const std::string name = absl::StrCat("rank", rank);
      command = {agent,
                 "--coordinator",
                 coordinator_address_,
                 "--job",
                 arguments_.job,
                 "--rank",
                 absl::StrCat(rank),
                 "--world-size",
                 absl::StrCat(arguments_.ranks),
                 "--root",
                 arguments_.root,
                 "--socket-directory",
                 run_ + "/" + name,
                 "--address-file",
                 absl::StrCat(run_, "/", name, ".address")};
      AddTokenFlags(context, command);
      command.insert(command.end(), arguments_.agent_flags.begin(), arguments_.agent_flags.end());
      CAIRN_RETURN_IF_ERROR(Launch(command, name));
    }
    for (int rank = 0; rank < arguments_.ranks; ++rank) {
      CAIRN_ASSIGN_OR_RETURN(std::string address, AwaitAddress(children_[static_cast<size_t>(rank) + 1],
                                                               absl::StrCat(run_, "/rank", rank, ".address"),
                                                               NameOf(static_cast<size_t>(rank) + 1), kStartTimeout));
      agents_.push_back(std::move(address));
    }
    return absl::OkStatus();
  }

  void Print(const CommandContext& context) const {
    if (context.json()) {
      nlohmann::ordered_json json = {{"coordinator", coordinator_address_},
                                     {"job", arguments_.job},
                                     {"root", arguments_.root},
                                     {"agents", agents_},
                                     {"logs", run_}};
      std::printf("%s\n", json.dump(2).c_str());
    } else {
      std::printf("export CAIRN_COORDINATOR=%s\n", coordinator_address_.c_str());
      for (size_t rank = 0; rank < agents_.size(); ++rank) {
        std::printf("export CAIRN_AGENT=%s  # the trainer of rank %zu\n", agents_[rank].c_str(), rank);
      }
      std::fprintf(stderr, "%s logs in %s; Ctrl-C drains and ends it\n",
                   Coloured(stderr, Colour::kGreen, "up:").c_str(), run_.c_str());
    }
    std::fflush(stdout);
  }

  // Waits until Ctrl-C (OK), or until a service ends by itself. No service is started again, because the person at this
  // terminal would not see why it ended.
  absl::Status Supervise() {
    for (;;) {
      if (InterruptFlag()) return absl::OkStatus();
      for (size_t i = 0; i < children_.size(); ++i) {
        if (const auto end = children_[i].Ended()) return ErrorOf(children_[i], NameOf(i), *end);
      }
      absl::SleepFor(absl::Milliseconds(100));
    }
  }

  // Ends the agents first, so that they finish what is staged and give their ranks back.
  void Drain() {
    for (size_t i = children_.size(); i-- > 1;) children_[i].Signal(SIGTERM);
    for (size_t i = children_.size(); i-- > 1;) children_[i].Wait(kDrainTimeout);
    if (!children_.empty()) {
      children_[0].Signal(SIGTERM);
      children_[0].Wait(kDrainTimeout);
    }
  }

 private:
  static ChildName NameOf(size_t child) {
    if (child == 0) return {"the coordinator", Reason::kCoordinatorUnreachable};
    return {absl::StrCat("the agent of rank ", child - 1), Reason::kAgentUnreachable};
  }

  absl::Status Launch(const std::vector<std::string>& command, const std::string& name) {
    CAIRN_ASSIGN_OR_RETURN(ChildProcess child, ChildProcess::Start(command, absl::StrCat(run_, "/", name, ".log")));
    children_.push_back(std::move(child));
    return absl::OkStatus();
  }

  const Arguments& arguments_;
  const std::string run_;
  std::string coordinator_address_;
  std::vector<std::string> agents_;
  std::vector<ChildProcess> children_;  // the coordinator, then the agents by rank
};

absl::Status Up(const CommandContext& context, const Arguments& arguments) {
  CAIRN_RETURN_IF_ERROR(CheckJobName(arguments.job));
  if (arguments.transport != "host") {
    return MakeError(Reason::kUnsupported,
                     absl::StrCat("--transport ", arguments.transport, ": this version moves bytes by host only"));
  }
  InterruptFlag();  // from here on, Ctrl-C drains
  std::error_code error;
  std::filesystem::create_directories(arguments.root, error);
  if (error) return ErrnoError(error.value(), "mkdir", arguments.root);
  CAIRN_ASSIGN_OR_RETURN(const auto run, RunDirectory::Make());
  LocalCluster cluster(arguments, run->path());
  absl::Status status = cluster.Start(context);
  if (status.ok()) {
    cluster.Print(context);
    status = cluster.Supervise();
    std::fprintf(stderr, "%sdraining ...\n",
                 status.ok() ? "" : absl::StrCat(status.message(), "; all others end with it, ").c_str());
  }
  cluster.Drain();
  if (status.ok()) return status;
  run->Keep();
  return WithMetadata(status, {{"job", arguments.job}, {"root", arguments.root}});
}

}  // namespace

void AddUpCommand(Command app, CommandContext& context) {
  auto arguments = std::make_shared<Arguments>();
  Command command =
      app.AddCommand("up", "Runs a coordinator and N agents on this machine until Ctrl-C; prints what trainers need");
  command.AddOption("--ranks", arguments->ranks, "Number of ranks").Required().Between(1, 4096);
  command.AddOption("--root", arguments->root, "Directory of the checkpoints; made if absent").Required();
  command.AddOption("--job", arguments->job, "The job's name").ShowDefault();
  command.AddOption("--transport", arguments->transport, "How agents exchange bytes")
      .OneOf({"host", "nccl"})
      .ShowDefault();
  command.AddOption("--coordinator-flag", arguments->coordinator_flags,
                    "Passed on, for example --coordinator-flag=--phase-timeout=1m");
  command.AddOption("--agent-flag", arguments->agent_flags, "Passed on to every agent");
  command.Footer(
      "Example:\n  cairn up --ranks 4 --root /checkpoints --job demo\n"
      "When one of them ends by itself, all are ended: the error is that one's own, and the logs stay.\n"
      "Exit status: 0 ended by Ctrl-C, 1 one of them failed, 130 interrupted before all were up.");
  command.Action([arguments, &context] {
    context.exit_status = ReportError(context, Up(context, *arguments));
    // A service that cannot be reached has ended here, so the outcome is known.
    if (context.exit_status == kUnknown) context.exit_status = kFailed;
  });
}

}  // namespace cairn::cli

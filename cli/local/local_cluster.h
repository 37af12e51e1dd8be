// The coordinator and the agents that `cairn up` and `cairn run` start on this machine, and keep running.
#ifndef CAIRN_CLI_LOCAL_LOCAL_CLUSTER_H_
#define CAIRN_CLI_LOCAL_LOCAL_CLUSTER_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "cli/base/command.h"
#include "cli/local/child_process.h"
#include "cli/local/run_directory.h"
#include "common/file/unique_fd.h"

namespace cairn::cli {

struct LocalClusterOptions {
  int ranks = 1;  // on this machine
  std::string root;
  std::string job = kDefaultJob;
  std::string run_directory;  // empty: RunDirectory::PathOf
  std::vector<std::string> coordinator_flags;
  std::vector<std::string> agent_flags;
  // Uses the coordinator that CommandContext names, instead of starting one.
  bool no_coordinator = false;
  // A job of several machines: this is one of `nodes`, each with `ranks` ranks. The first one has the coordinator, at
  // the address that CommandContext names.
  int nodes = 1;
  int node = 0;
  std::string host;  // where the other machines reach this one
};

// Declares the options of both commands. `options` must live until the command line is parsed.
void AddLocalClusterOptions(Command& command, LocalClusterOptions& options);

// Not thread-safe. The destructor kills what still runs.
class LocalCluster {
 public:
  LocalCluster(LocalClusterOptions options, const CommandContext& context);
  ~LocalCluster();

  // Starts everything and waits until it serves. Fails as RunDirectory::Take and ErrorOf; CANCELLED (INTERRUPTED).
  absl::Status Start();

  // Starts again what has ended, with pauses that grow up to five seconds. Must be called some times a second. Returns
  // what a person should hear: "the agent of rank 1 ended with signal 9; it is started again".
  std::vector<std::string> Tend();

  // Asks the agents to finish what is staged and to end, then the coordinator, and waits for that. Returns early if
  // `give_up` returns true; the destructor then kills the rest.
  template <typename GiveUp>
  void Drain(GiveUp give_up) {
    DrainAgents(give_up);
    DrainCoordinator(give_up);
  }
  // The two halves of Drain.
  template <typename GiveUp>
  void DrainAgents(GiveUp give_up) {
    DrainServices(/*agents=*/true, give_up);
  }
  template <typename GiveUp>
  void DrainCoordinator(GiveUp give_up) {
    DrainServices(/*agents=*/false, give_up);
  }
  // Returns whether the coordinator is one of what was started here.
  bool HasCoordinator() const;

  // Returns what the user should hear about the checkpoints that the job starts from (ProgressNote), once it has
  // started; empty if that is nothing, and on the machines of a job beyond its first one.
  std::string NoteOnStart() const;

  // Returns the environment variables that trainers and commands need: name and value.
  std::vector<std::pair<std::string, std::string>> Environment() const;
  const std::string& coordinator_address() const { return coordinator_; }
  const std::string& logs() const { return directory_->path(); }
  std::string agent_pattern() const { return directory_->AgentPattern(); }
  // Returns the agents' addresses, by rank on this machine.
  std::vector<std::string> agents() const;

 private:
  struct Service {
    ChildName name;
    std::vector<std::string> command;
    std::vector<std::string> environment;
    std::string log;
    std::string address_file;
    std::unique_ptr<ChildProcess> child;
    absl::Time started = absl::InfinitePast();
    absl::Time next_start = absl::InfinitePast();
    absl::Duration pause = absl::ZeroDuration();
  };

  template <typename GiveUp>
  void DrainServices(bool agents, GiveUp give_up) {
    SignalServices(agents);
    while (Serving(agents) && !give_up()) PauseShortly();
  }
  int FirstRank() const { return options_.node * options_.ranks; }
  // Waits for a coordinator that is about to give the root back. FAILED_PRECONDITION (ROOT_IN_USE): one serves it and
  // stays; the next action is the command that takes part beside it.
  absl::Status AwaitRoot() const;
  absl::Status PlanServices();
  // The environment of an agent, by its number on this machine.
  std::vector<std::string> LocalRankOf(int number) const;
  void AddService(ChildName name, const std::string& log, std::vector<std::string> command);
  absl::Status Launch(Service& service);
  void SignalServices(bool agents);
  bool Serving(bool agents);
  static void PauseShortly();

  const LocalClusterOptions options_;
  const CommandContext& context_;
  bool root_is_new_ = false;
  std::unique_ptr<RunDirectory> directory_;
  // Bound and never listening: it keeps the coordinator's port while no coordinator has it.
  UniqueFd port_;
  std::string coordinator_;
  std::vector<Service> services_;  // the coordinator, if it is here, then the agents
};

}  // namespace cairn::cli

#endif  // CAIRN_CLI_LOCAL_LOCAL_CLUSTER_H_

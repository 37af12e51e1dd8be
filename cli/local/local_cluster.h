// The coordinator and the agents that `cairn up`, `cairn run` and `cairn agents` start on this machine, and restart if
// they end.
#ifndef CAIRN_CLI_LOCAL_LOCAL_CLUSTER_H_
#define CAIRN_CLI_LOCAL_LOCAL_CLUSTER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "cli/base/command.h"
#include "cli/local/agent_scrape.h"
#include "cli/local/child_process.h"
#include "cli/local/run_directory.h"
#include "common/file/unique_fd.h"

namespace cairn::cli {

struct LocalClusterOptions {
  int ranks = 1;  // on this machine
  std::string root;
  std::string mirror;  // empty: none, or one of the coordinator's flags
  std::string job = kDefaultJob;
  std::string run_directory;  // empty: RunDirectory::PathOf
  std::vector<std::string> coordinator_flags;
  std::vector<std::string> agent_flags;
  // If true, starts no coordinator and uses the one at the address of CommandContext.
  bool no_coordinator = false;
  // For a job on several machines: their number, and the number of this one, from 0. Each has `ranks` ranks. The
  // coordinator runs on machine 0, at the address of CommandContext.
  int nodes = 1;
  int node = 0;
  std::string host;  // the name or address by which other machines reach this one
  // Addresses of the first agent here, "host:port": where it listens, and what other agents are told if that is another
  // address. The agents after it take the ports that follow. Empty: a free port of `host`; the same.
  std::string listen;
  std::string advertise;
  bool agent_metrics = false;  // each agent serves metrics at a Unix socket (metrics_sockets)
  // The trainers are in another container of the same pod. Then agents print to standard error and have no logs, other
  // users may enter the directories of their sockets, these are named by the rank on this machine, and the root must
  // stand.
  bool sidecar = false;
  absl::Duration start_timeout = absl::Seconds(30);  // of each process
};

// Declares the options that `cairn up` and `cairn run` share. `options` must live until the command line is parsed.
void AddLocalClusterOptions(Command& command, LocalClusterOptions& options);

// Not thread-safe. The destructor kills the processes that still run.
class LocalCluster {
 public:
  LocalCluster(LocalClusterOptions options, const CommandContext& context);
  ~LocalCluster();

  // Starts the coordinator and the agents, and waits until all of them serve. Fails as RunDirectory::Take and ErrorOf.
  // CANCELLED (INTERRUPTED): InterruptFlag was set. FAILED_PRECONDITION (ROOT_IN_USE): another coordinator serves the
  // root.
  absl::Status Start();

  // Starts processes again that have ended, with pauses that grow up to five seconds. Must be called some times a
  // second. Returns messages for the user: "the agent of rank 1 ended with signal 9; it is started again".
  std::vector<std::string> Tend();

  // Waits for orphans as cli::ReapOrphans does. `other` is a child of this process besides those here; -1 if there is
  // none.
  void ReapOrphans(pid_t other = -1);

  // Returns what is wrong with the end of the agents after DrainAgents: "the agent of rank 1 ended with exit status 1",
  // "the agent of rank 2 still runs". Empty if all have ended well.
  std::vector<std::string> AgentsThatEndedBadly();

  // Asks the agents to finish staged saves and to end, waits for them, and then does the same with the coordinator.
  // Returns early if `give_up` returns true; the destructor then kills the processes that still run.
  template <typename GiveUp>
  void Drain(GiveUp give_up) {
    DrainAgents(give_up);
    DrainCoordinator(give_up);
  }
  template <typename GiveUp>
  void DrainAgents(GiveUp give_up) {
    DrainServices(/*agents=*/true, give_up);
  }
  template <typename GiveUp>
  void DrainCoordinator(GiveUp give_up) {
    DrainServices(/*agents=*/false, give_up);
  }
  // Returns whether this object starts the coordinator.
  bool HasCoordinator() const;

  // Returns a message about the checkpoints that the job starts from (ProgressNote), for after the start. Empty if
  // there is nothing to say, and on all machines except machine 0.
  std::string NoteOnStart() const;

  // Returns the environment variables that trainers and commands need: name and value.
  std::vector<std::pair<std::string, std::string>> Environment() const;
  const std::string& coordinator_address() const { return coordinator_; }
  const std::string& logs() const { return directory_->path(); }
  // Returns the address of the agents for trainers, with the rank or the rank on this machine in braces.
  std::string agent_pattern() const;
  // Returns how many services run, and how many were started again because they had ended.
  int running() const;
  int64_t restarts() const { return restarts_; }
  // Returns where each agent serves its metrics, if agent_metrics is set.
  std::vector<AgentSocket> metrics_sockets() const;
  // Returns the agents' addresses, by rank on this machine.
  std::vector<std::string> agents() const;

 private:
  bool MirrorIsAFlag() const;  // of those for the coordinator
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
  // Returns the directory of an agent's sockets, by its number on this machine.
  std::string SocketDirectory(int number) const;
  std::string MetricsSocket(int number) const;
  // Returns the flags of an agent that say where it listens, by its number on this machine.
  absl::StatusOr<std::vector<std::string>> AddressesOf(int number) const;
  // If a coordinator holds the root and is ending, waits for its end. FAILED_PRECONDITION (ROOT_IN_USE): a coordinator
  // serves the root and does not end; the next action is a command that uses that coordinator (join_advice.h).
  absl::Status AwaitRoot() const;
  // Makes the directory of the root, unless it stands.
  absl::Status MakeRoot();
  absl::Status PlanServices();
  absl::Status StartServices();
  // Returns the environment of an agent, by its number on this machine.
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
  // A bound socket that never listens. It reserves the coordinator's port while no coordinator runs.
  UniqueFd port_;
  std::string coordinator_;
  int64_t restarts_ = 0;
  std::vector<Service> services_;  // the coordinator, if it is here, then the agents
};

}  // namespace cairn::cli

#endif  // CAIRN_CLI_LOCAL_LOCAL_CLUSTER_H_

#include "cli/local/local_cluster.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "cli/base/interrupt.h"
#include "cli/base/terminal.h"
#include "cli/local/join_advice.h"
#include "cli/local/next_port.h"
#include "common/base/clock.h"
#include "common/base/duration_text.h"
#include "common/file/errno_error.h"
#include "common/format/checkpoint_path.h"
#include "common/rpc/address.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "store/open/open_storage.h"
#include "store/posix/nested_root.h"
#include "store/read/stored_progress.h"
#include "store/storage/root_lock.h"

namespace cairn::cli {
namespace {

// How long to wait for a coordinator that is ending to release the root. After this time the root counts as in use.
constexpr absl::Duration kRootPatience = absl::Seconds(2);
constexpr absl::Duration kFirstPause = absl::Milliseconds(100);
constexpr absl::Duration kLongestPause = absl::Seconds(5);
// How long services that were started in vain may take to end.
constexpr absl::Duration kEndOfStarted = absl::Seconds(2);
constexpr char kEndedWell[] = "exit status 0";
// A service that has run for this time is restarted without a pause.
constexpr absl::Duration kSteady = absl::Minutes(1);

// Returns the path of a service's program, which is in the directory of this program.
absl::StatusOr<std::string> Program(const std::string& name) {
  std::error_code error;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", error);
  std::string path = (self.parent_path() / name).string();
  if (error || access(path.c_str(), X_OK) != 0) return ErrnoError(ENOENT, "start", path);
  return path;
}

// Returns a socket that is bound to a free loopback port. While it is open, the system gives this port to no other
// program. The coordinator can still bind the port, because this socket does not listen.
absl::StatusOr<UniqueFd> ReservePort(int& port) {
  UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int on = 1;
  setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  if (bind(fd.get(), reinterpret_cast<sockaddr*>(&address), size) != 0 ||
      getsockname(fd.get(), reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    return ErrnoError(errno, "bind", "a loopback port");
  }
  port = ntohs(address.sin_port);
  return fd;
}

// Makes a path absolute, because other processes with other working directories use it.
std::string Absolute(const std::string& path) {
  std::error_code error;
  const std::filesystem::path whole = std::filesystem::absolute(path, error);
  return error ? path : whole.string();
}

std::string AbsoluteRoot(const std::string& root) { return IsDirectoryRoot(root) ? Absolute(root) : root; }

// Returns the words of the command that this process runs.
std::vector<std::string> OwnCommandLine() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::vector<std::string> words;
  for (std::string word; std::getline(file, word, '\0');) words.push_back(word);
  return words;
}

}  // namespace

void AddLocalClusterOptions(Command& command, LocalClusterOptions& options) {
  command
      .AddOption("--root", options.root,
                 "Directory of all checkpoints, which is made if missing, or s3://BUCKET/PREFIX, gs://BUCKET/PREFIX")
      .Required();
  command.AddOption("--job", options.job, "The job's name").FromEnvironment("CAIRN_JOB").ShowDefault();
  command.AddOption("--run-directory", options.run_directory,
                    "Directory for sockets and logs (default: one for this user and job, in XDG_RUNTIME_DIR or /tmp)");
  command
      .AddOption("--mirror", options.mirror,
                 "Experimental. Second root, a directory or s3://BUCKET/PREFIX, gs://BUCKET/PREFIX, to which committed "
                 "checkpoints are copied")
      .FromEnvironment("CAIRN_MIRROR");
  command.AddOption("--coordinator-flag", options.coordinator_flags,
                    "A flag for the coordinator, for example --coordinator-flag=--phase-timeout=1m");
  command.AddOption("--agent-flag", options.agent_flags, "A flag for every agent");
  command.AddFlag("--no-coordinator", options.no_coordinator,
                  "Use the coordinator at --coordinator instead of starting one");
  command.AddOption("--nodes", options.nodes, "Number of machines of the job; each has the same number of ranks")
      .Between(1, 4096);
  command
      .AddOption("--node-rank", options.node,
                 "The number of this machine, from 0; machine 0 runs the coordinator, at the address --coordinator")
      .FromEnvironment("SLURM_NODEID")
      .Between(0, 4095);
  command.AddOption("--host", options.host, "With --nodes: the address by which other machines reach this one");
}

LocalCluster::LocalCluster(LocalClusterOptions options, const CommandContext& context)
    : options_(std::move(options)), context_(context) {}

LocalCluster::~LocalCluster() {
  // Agents end before the coordinator, because without a coordinator they would log errors.
  while (!services_.empty()) services_.pop_back();
}

bool LocalCluster::MirrorIsAFlag() const {
  return std::ranges::any_of(options_.coordinator_flags, [](const std::string& flag) {
    return flag == "--mirror" || flag.starts_with("--mirror=");
  });
}

bool LocalCluster::HasCoordinator() const { return !options_.no_coordinator && options_.node == 0; }

absl::Status LocalCluster::Start() {
  CAIRN_RETURN_IF_ERROR(CheckJobName(options_.job));
  if (options_.node >= options_.nodes) {
    return MakeError(Reason::kRankOutOfRange,
                     absl::StrCat("--node-rank ", options_.node, " of --nodes ", options_.nodes),
                     {{"next", "Count the machines from 0: --node-rank is below --nodes."}});
  }
  if (options_.no_coordinator && context_.coordinator.empty()) {
    return MakeError(Reason::kBadRequest, "--no-coordinator needs --coordinator HOST:PORT of a running one",
                     {{"next", "Add --coordinator, or omit --no-coordinator: then a coordinator is started."}});
  }
  if (options_.nodes > 1 && (context_.coordinator.empty() || (options_.host.empty() && options_.listen.empty()))) {
    return MakeError(
        Reason::kBadRequest,
        "--nodes needs --coordinator HOST:PORT, the address of machine 0's coordinator for all machines, and --host, "
        "this machine's address for the others",
        {{"next", "Add both, as in --coordinator 10.0.0.1:7420 --host 10.0.0.2; docs/launching.md has an example."}});
  }
  // In a pod, a root that is missing is a volume that is not mounted.
  if (IsDirectoryRoot(options_.root) && !options_.sidecar) CAIRN_RETURN_IF_ERROR(MakeRoot());
  const std::string& directory = options_.run_directory;
  CAIRN_ASSIGN_OR_RETURN(
      directory_, RunDirectory::Take(directory.empty() ? RunDirectory::PathOf(options_.job) : Absolute(directory),
                                     /*others_may_enter=*/options_.sidecar));
  const std::string root = AbsoluteRoot(options_.root);
  CAIRN_RETURN_IF_ERROR(directory_->Describe(options_.job, root));
  std::vector<std::string> own;
  for (int number = 0; number < options_.ranks; ++number) own.push_back(SocketDirectory(number));
  directory_->RemoveOtherSockets(own);
  if (HasCoordinator()) CAIRN_RETURN_IF_ERROR(AwaitRoot());
  CAIRN_RETURN_IF_ERROR(PlanServices());
  const absl::Status started = StartServices();
  if (!started.ok()) {
    // They serve no trainer yet, and give back their ranks if they may end by themselves.
    const absl::Time deadline = Clock::Real().SteadyNow() + kEndOfStarted;
    Drain([&] { return Clock::Real().SteadyNow() >= deadline; });
  }
  return started;
}

absl::Status LocalCluster::StartServices() {
  for (Service& service : services_) {
    (void)unlink(service.address_file.c_str());  // the file of the previous run
    CAIRN_RETURN_IF_ERROR(Launch(service));
    // Agents are started together, when their coordinator serves.
    if (&service == &services_.front() && HasCoordinator()) {
      CAIRN_RETURN_IF_ERROR(
          AwaitAddress(*service.child, service.address_file, service.name, options_.start_timeout).status());
    }
  }
  for (Service& service : services_) {
    CAIRN_RETURN_IF_ERROR(
        AwaitAddress(*service.child, service.address_file, service.name, options_.start_timeout).status());
  }
  return absl::OkStatus();
}

absl::Status LocalCluster::MakeRoot() {
  // This check comes first, so that no directory is made that may not become a root.
  CAIRN_RETURN_IF_ERROR(CheckStandsAlone(options_.root));
  std::error_code error;
  root_is_new_ = !std::filesystem::exists(options_.root, error);
  if (!root_is_new_ && !std::filesystem::is_directory(options_.root, error)) {
    return MakeError(Reason::kBadRequest,
                     absl::StrCat("--root ", options_.root, " is a file, and a root is a directory"),
                     {{"file", options_.root}, {"next", "Give the directory of the checkpoints: --root DIR."}});
  }
  std::filesystem::create_directories(options_.root, error);
  if (error) {
    // ENOENT here means that no directory can be made, for example below /proc. FILE_MISSING would be wrong.
    const int number = error.value();
    return number == ENOENT ? ErrnoError(Reason::kStorageReadOnly, number, "mkdir", options_.root)
                            : ErrnoError(number, "mkdir", options_.root);
  }
  return absl::OkStatus();
}

absl::Status LocalCluster::AwaitRoot() const {
  // If the user sets --lock-timeout, the coordinator itself waits.
  for (const std::string& flag : options_.coordinator_flags) {
    if (flag.starts_with("--lock-timeout")) return absl::OkStatus();
  }
  // MakeRoot has made a directory; a root in an object store is made by its first object.
  CAIRN_ASSIGN_OR_RETURN(const auto storage, OpenStorage(options_.root, /*create=*/!IsDirectoryRoot(options_.root)));
  const absl::Duration lasting = storage->LockOutlivesHolder();
  const absl::Time deadline = Clock::Real().SteadyNow() + kRootPatience + lasting;
  bool told = lasting == absl::ZeroDuration() || context_.json();
  while (true) {
    const auto holder = storage->HolderOfRoot();
    // After an error the coordinator is started all the same: it reads the same file and reports the error better.
    if (!holder.ok() || !holder->has_value()) return absl::OkStatus();
    if (!told) {
      std::fprintf(stderr, "cairn: waiting up to %s for the lock of %s, which may have been killed\n",
                   DurationText(lasting).c_str(), ForTerminal((*holder)->text).c_str());
      told = true;
    }
    if (Clock::Real().SteadyNow() < deadline) {
      if (InterruptFlag()) return MakeError(Reason::kInterrupted, "interrupted");
      absl::SleepFor(kFirstPause);
      continue;
    }
    if ((*holder)->address.empty()) {
      // The holder is a starting coordinator, or a command that needs the root shortly. So our coordinator waits.
      if (!context_.json()) {
        std::fprintf(stderr, "cairn: waiting for %s, which has %s\n", ForTerminal((*holder)->text).c_str(),
                     options_.root.c_str());
      }
      return absl::OkStatus();
    }
    return MakeError(Reason::kRootInUse,
                     absl::StrCat(options_.root, " is served by ", (*holder)->text, " at ", (*holder)->address),
                     {{"next", HowToJoin(**holder, OwnCommandLine())},
                      {"address", (*holder)->address},
                      {"root", options_.root},
                      {"holder", (*holder)->text}});
  }
}

absl::Status LocalCluster::PlanServices() {
  const std::string root = AbsoluteRoot(options_.root);
  std::vector<std::string> access;
  if (!context_.token_file.empty()) access = {"--token-file", Absolute(context_.token_file)};
  if (context_.insecure) access = {"--insecure"};
  const auto with = [&](std::vector<std::string> command, const std::vector<std::string>& flags) {
    command.insert(command.end(), access.begin(), access.end());
    command.insert(command.end(), flags.begin(), flags.end());
    return command;
  };
  // A job on one machine ignores CAIRN_COORDINATOR, which may be left over from an earlier job.
  if (options_.no_coordinator || options_.nodes > 1) coordinator_ = context_.coordinator;
  if (HasCoordinator()) {
    if (coordinator_.empty()) {
      int port = 0;
      CAIRN_ASSIGN_OR_RETURN(port_, ReservePort(port));
      coordinator_ = absl::StrCat("127.0.0.1:", port);
    }
    CAIRN_ASSIGN_OR_RETURN(const std::string program, Program("cairn-coordinator"));
    std::vector<std::string> command = {program, "--listen", coordinator_, "--root", root};
    if (!options_.mirror.empty() && !MirrorIsAFlag())
      command.insert(command.end(), {"--mirror", AbsoluteRoot(options_.mirror)});
    AddService({"the coordinator", Reason::kCoordinatorUnreachable}, "coordinator",
               with(std::move(command), options_.coordinator_flags));
  }
  CAIRN_ASSIGN_OR_RETURN(const std::string program, Program("cairn-agent"));
  for (int rank = FirstRank(); rank < FirstRank() + options_.ranks; ++rank) {
    std::vector<std::string> command = {program,
                                        "--coordinator",
                                        coordinator_,
                                        "--job",
                                        options_.job,
                                        "--rank",
                                        absl::StrCat(rank),
                                        "--world-size",
                                        absl::StrCat(options_.nodes * options_.ranks),
                                        "--root",
                                        root,
                                        "--socket-directory",
                                        SocketDirectory(rank - FirstRank())};
    CAIRN_ASSIGN_OR_RETURN(const std::vector<std::string> addresses, AddressesOf(rank - FirstRank()));
    command.insert(command.end(), addresses.begin(), addresses.end());
    AddService({absl::StrCat("the agent of rank ", rank), Reason::kAgentUnreachable}, absl::StrCat("rank", rank),
               with(std::move(command), options_.agent_flags));
    // Sets LOCAL_RANK as launchers do, so that each rank of a machine uses its own GPU for NCCL.
    services_.back().environment = LocalRankOf(rank - FirstRank());
  }
  return absl::OkStatus();
}

std::string LocalCluster::SocketDirectory(int number) const {
  return options_.sidecar ? directory_->LocalSocketDirectory(number)
                          : directory_->SocketDirectory(FirstRank() + number);
}

absl::StatusOr<std::vector<std::string>> LocalCluster::AddressesOf(int number) const {
  std::vector<std::string> flags;
  if (options_.listen.empty() && !options_.host.empty()) flags = {"--listen", JoinHostPort(options_.host, 0)};
  for (const auto& [flag, first] :
       {std::pair<std::string, const std::string&>{"--listen", options_.listen}, {"--advertise", options_.advertise}}) {
    if (first.empty()) continue;
    CAIRN_ASSIGN_OR_RETURN(std::string address, AddressAfter(first, number, flag));
    flags.insert(flags.end(), {flag, std::move(address)});
  }
  if (options_.agent_metrics) flags.insert(flags.end(), {"--metrics-listen", "unix:" + MetricsSocket(number)});
  return flags;
}

std::string LocalCluster::MetricsSocket(int number) const { return SocketDirectory(number) + "/metrics.sock"; }

std::vector<AgentSocket> LocalCluster::metrics_sockets() const {
  std::vector<AgentSocket> sockets;
  for (int number = 0; number < options_.ranks; ++number) {
    sockets.push_back({FirstRank() + number, MetricsSocket(number)});
  }
  return sockets;
}

std::vector<std::string> LocalCluster::LocalRankOf(int number) const {
  // For the only rank of a machine, the user may have set LOCAL_RANK.
  if (options_.ranks == 1 && std::getenv("LOCAL_RANK") != nullptr) return {};
  return {absl::StrCat("LOCAL_RANK=", number)};
}

void LocalCluster::AddService(ChildName name, const std::string& log, std::vector<std::string> command) {
  Service service;
  service.name = std::move(name);
  if (!options_.sidecar) service.log = directory_->NewLog(log);
  service.address_file = absl::StrCat(directory_->path(), "/", log, ".address");
  command.insert(command.end(), {"--address-file", service.address_file});
  service.command = std::move(command);
  services_.push_back(std::move(service));
}

absl::Status LocalCluster::Launch(Service& service) {
  service.started = Clock::Real().SteadyNow();
  CAIRN_ASSIGN_OR_RETURN(ChildProcess child, ChildProcess::Start(service.command, service.log, service.environment));
  service.child = std::make_unique<ChildProcess>(std::move(child));
  return absl::OkStatus();
}

std::vector<std::string> LocalCluster::Tend() {
  std::vector<std::string> said;
  const absl::Time now = Clock::Real().SteadyNow();
  for (Service& service : services_) {
    if (service.child != nullptr) {
      const auto end = service.child->Ended();
      if (!end.has_value()) continue;
      const std::string where = service.log.empty() ? "" : absl::StrCat(" (", service.log, ")");
      said.push_back(absl::StrCat(service.name.text, " ended with ", *end, "; it is started again", where));
      ++restarts_;
      const bool steady = now - service.started >= kSteady;
      service.pause = steady ? kFirstPause : std::clamp(2 * service.pause, kFirstPause, kLongestPause);
      service.next_start = now + service.pause;
      service.child.reset();
    }
    if (now < service.next_start) continue;
    if (const absl::Status launched = Launch(service); !launched.ok()) {
      said.push_back(absl::StrCat(service.name.text, " cannot be started: ", launched.message()));
      service.pause = std::clamp(2 * service.pause, kFirstPause, kLongestPause);
      service.next_start = now + service.pause;
    }
  }
  return said;
}

void LocalCluster::ReapOrphans(pid_t other) {
  cli::ReapOrphans([this, other](pid_t pid) {
    return pid == other || std::ranges::any_of(services_, [pid](const Service& service) {
             return service.child != nullptr && service.child->pid() == pid;
           });
  });
}

std::vector<std::string> LocalCluster::AgentsThatEndedBadly() {
  std::vector<std::string> bad;
  for (size_t i = HasCoordinator() ? 1 : 0; i < services_.size(); ++i) {
    if (services_[i].child == nullptr) continue;
    const std::optional<std::string> end = services_[i].child->Ended();
    if (end == kEndedWell) continue;
    bad.push_back(
        absl::StrCat(services_[i].name.text, end.has_value() ? " ended with " : " still runs", end.value_or("")));
  }
  return bad;
}

void LocalCluster::SignalServices(bool agents) {
  for (size_t i = 0; i < services_.size(); ++i) {
    const bool coordinator = i == 0 && HasCoordinator();
    if (coordinator != agents && services_[i].child != nullptr) services_[i].child->Signal(SIGTERM);
  }
}

bool LocalCluster::Serving(bool agents) {
  for (size_t i = 0; i < services_.size(); ++i) {
    const bool coordinator = i == 0 && HasCoordinator();
    const std::unique_ptr<ChildProcess>& child = services_[i].child;
    if (coordinator != agents && child != nullptr && !child->Ended().has_value()) return true;
  }
  return false;
}

void LocalCluster::PauseShortly() { absl::SleepFor(absl::Milliseconds(10)); }

std::string LocalCluster::NoteOnStart() const {
  if (options_.node != 0) return "";
  if (root_is_new_) {
    return absl::StrCat("there was no directory ", options_.root, ": it was made, and job ", options_.job,
                        options_.mirror.empty() && !MirrorIsAFlag()
                            ? " starts from the beginning"
                            : " starts from what the mirror has, or from the beginning");
  }
  const auto storage = OpenStorage(options_.root, /*create=*/!IsDirectoryRoot(options_.root));
  return ProgressNote(storage.ok() ? LookForProgress(**storage, options_.job) : storage.status(), options_.job,
                      options_.root);
}

std::vector<std::pair<std::string, std::string>> LocalCluster::Environment() const {
  std::vector<std::pair<std::string, std::string>> variables = {
      {"CAIRN_COORDINATOR", coordinator_}, {"CAIRN_AGENT", agent_pattern()}, {"CAIRN_JOB", options_.job}};
  if (!context_.token_file.empty()) variables.emplace_back("CAIRN_TOKEN_FILE", Absolute(context_.token_file));
  if (context_.insecure) variables.emplace_back("CAIRN_INSECURE", "1");
  return variables;
}

std::string LocalCluster::agent_pattern() const {
  return options_.sidecar ? directory_->LocalAgentPattern() : directory_->AgentPattern();
}

std::vector<std::string> LocalCluster::agents() const {
  std::vector<std::string> addresses;
  addresses.reserve(static_cast<size_t>(options_.ranks));
  for (int number = 0; number < options_.ranks; ++number) {
    addresses.push_back(absl::StrCat("unix:", SocketDirectory(number), "/agent.sock"));
  }
  return addresses;
}

int LocalCluster::running() const {
  return static_cast<int>(std::count_if(services_.begin(), services_.end(),
                                        [](const Service& service) { return service.child != nullptr; }));
}

}  // namespace cairn::cli

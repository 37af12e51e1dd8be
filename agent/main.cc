// cairn-agent: moves the bytes of one rank.
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "agent/runtime/agent.h"
#include "agent/sockets/socket_directory.h"
#include "agent/trainer_service/local_server.h"
#include "agent/trainer_service/local_service.h"
#include "common/base/version.h"
#include "common/base/version_text.h"
#include "common/process/address_file.h"
#include "common/process/arguments.h"
#include "common/process/log.h"
#include "common/process/quantity.h"
#include "common/resources/memory.h"
#include "common/rpc/address.h"
#include "common/status/reason.h"
#include "common/storage/checkpoint_path.h"

namespace {

constexpr char kFooter[] = R"(Examples:
  cairn-agent --coordinator 127.0.0.1:7420 --job demo --rank 0 --world-size 4 --root /ckpt
  CAIRN_COORDINATOR=coordinator:7420 CAIRN_JOB=llm RANK=3 WORLD_SIZE=64 cairn-agent --root /ckpt \
      --listen 0.0.0.0:7421 --token-file /etc/cairn/token

Every flag can also be given as CAIRN_<FLAG>, for example CAIRN_MEMORY_BUDGET=64GiB. A trainer finds its agent by
CAIRN_AGENT, the address that --address-file is given. SIGTERM drains: staged saves are finished first.)";

int Fail(const absl::Status& status) {
  const auto reason = cairn::ReasonOf(status);
  std::string text = "error: ";
  if (reason) absl::StrAppend(&text, std::string(cairn::InfoOf(*reason).name), ": ");
  absl::StrAppend(&text, status.message(), "\n");
  if (reason) absl::StrAppend(&text, "  next: ", cairn::NextActionOf(status), "\n");
  (void)!write(STDERR_FILENO, text.data(), text.size());
  return 1;
}

std::string HostName() {
  char name[256] = {};
  if (gethostname(name, sizeof(name) - 1) != 0) return "unknown";
  return name;
}

}  // namespace

int main(int argc, char** argv) {
  cairn::ArgumentParser app("cairn-agent",
                            "The agent of one rank: stages, writes, reads and exchanges its part of checkpoints.",
                            cairn::VersionText("cairn-agent"));
  app.Footer(kFooter);
  cairn::AgentOptions options;
  std::string memory_budget = "0", round_bytes = "32MiB", address_file, shared_memory = "auto", io = "auto";
  std::string drain_timeout = "10m", register_timeout = "20s";
  const auto add = [&app](const std::string& flag, auto& value, const std::string& help) {
    std::string variable = "CAIRN_";
    for (char c : flag.substr(2)) variable += c == '-' ? '_' : static_cast<char>(std::toupper(c));
    return app.AddOption(flag, value, help).FromEnvironment(variable).ShowDefault();
  };
  const char* const kHostPort = "host:port, for example 10.0.0.1:7420";
  add("--coordinator", options.coordinator, "address of the coordinator, host:port")
      .Required()
      .Fits(cairn::IsHostPort, kHostPort);
  add("--job", options.job, "name of the training job").Required();
  add("--rank", options.rank, "rank of the trainer (also RANK)").FromEnvironment("RANK").Required();
  add("--world-size", options.world_size, "number of ranks of the job (also WORLD_SIZE)")
      .FromEnvironment("WORLD_SIZE")
      .Required();
  add("--root", options.root, "directory of all checkpoints, the same for coordinator and agents").Required();
  add("--listen", options.listen, "where other agents connect; other than loopback needs --token-file")
      .Fits(cairn::IsHostPort, kHostPort);
  add("--advertise", options.advertise, "address that other agents are told, if it is not the one of --listen")
      .Fits(cairn::IsHostPort, kHostPort);
  add("--socket-directory", options.socket_directory,
      "directory of the trainer's socket (default: below XDG_RUNTIME_DIR or /tmp)");
  add("--memory-budget", memory_budget,
      "largest shared memory for staging and reading; 0: what container and machine allow");
  add("--round-bytes", round_bytes, "largest read buffer; an agent holds two");
  add("--io-threads", options.io_threads, "threads that write and read files").Between(1, 64);
  add("--io", io,
      "auto: direct, but loads through the page cache if the state is small beside free memory; buffered: always "
      "through the page cache")
      .OneOf({"auto", "buffered"});
  add("--shared-memory", shared_memory,
      "auto: with agents of this machine; never: bytes between agents go over the network")
      .OneOf({"auto", "never"});
  add("--node", options.node, "name of this machine, for people and for planning (default: the host's name)");
  add("--allow-uid", options.allowed_users, "user whose trainers may connect besides this agent's own").SplitAt(',');
  add("--import-root", options.import_roots,
      "with --allow-uid: directory below which loads may import safetensors files (default: none)")
      .SplitAt(',');
  cairn::Argument token_file =
      add("--token-file", options.token_file,
          "file with the secret that coordinator and agents share (default: looked for by the coordinator's address in "
          "this user's runtime directory, then in <root>/.cairn/token)");
  app.AddFlag("--insecure", options.insecure, "send no token, and ask other agents for none")
      .FromEnvironment("CAIRN_INSECURE")
      .Excludes(token_file);
  add("--address-file", address_file, "written when the agent serves: the address for CAIRN_AGENT");
  add("--drain-timeout", drain_timeout, "how long SIGTERM waits for staged saves");
  add("--register-timeout", register_timeout,
      "how long a rank that another agent still holds is asked for again, and a token looked for that the coordinator "
      "takes; more than the coordinator's --lease-ttl");
  if (const std::optional<int> exit_status = app.Parse(argc, argv)) return *exit_status;
  if (options.node.empty()) options.node = HostName();
  options.shared_memory = shared_memory == "auto";
  options.direct_io = io == "auto";
  const auto budget = cairn::ParseSize(memory_budget);
  const auto round = cairn::ParseSize(round_bytes);
  const auto drain = cairn::ParseDuration(drain_timeout);
  const auto registering = cairn::ParseDuration(register_timeout);
  for (const absl::Status& status :
       {budget.status(), round.status(), drain.status(), registering.status(), cairn::CheckJobName(options.job)}) {
    if (!status.ok()) return Fail(status), 2;
  }
  if (options.rank >= options.world_size) {
    return Fail(cairn::MakeError(cairn::Reason::kRankOutOfRange,
                                 absl::StrCat("rank ", options.rank, " of a world of ", options.world_size))),
           2;
  }
  options.memory_budget = static_cast<uint64_t>(*budget);
  options.round_bytes = static_cast<uint64_t>(*round);
  options.register_timeout = *registering;
  if (options.socket_directory.empty()) {
    options.socket_directory = cairn::DefaultSocketDirectory(options.job, options.rank);
  }
  cairn::SetLogContext({{"job", options.job}, {"rank", options.rank}});

  // Signals arrive as reads of the main thread; every thread started from here on inherits the mask.
  signal(SIGPIPE, SIG_IGN);
  signal(SIGXFSZ, SIG_IGN);  // a write beyond a limit fails by EFBIG, and is reported
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  const int signal_fd = signalfd(-1, &signals, SFD_CLOEXEC);
  const int fatal_fd = eventfd(0, EFD_CLOEXEC);
  absl::Status refused;  // written before the event that makes the main thread read it
  options.on_fatal = [fatal_fd, &refused](const absl::Status& status) {
    refused = status;
    const uint64_t one = 1;
    (void)!write(fatal_fd, &one, sizeof(one));
  };

  auto agent = cairn::WithMemory("to start", [&] { return cairn::Agent::Start(options); });
  if (!agent.ok()) return Fail(agent.status());
  cairn::LocalService service(**agent);
  auto server = cairn::WithMemory("to start", [&] {
    return cairn::LocalServer::Start(options.socket_directory + "/agent.sock", cairn::UserPolicy(options.allowed_users),
                                     &service);
  });
  if (!server.ok()) return Fail(server.status());
  service.SetPeerLookup([raw = server->get()](const std::string& peer) { return raw->PeerOfCall(peer); });
  const std::string address = "unix:" + (*server)->path();
  if (!address_file.empty()) {
    if (const absl::Status written = cairn::WriteAddressFile(address_file, address); !written.ok())
      return Fail(written);
  }
  cairn::Log(cairn::LogLevel::kInfo, "serving",
             {{"address", address},
              {"transfer", (*agent)->transfer_address()},
              {"coordinator", options.coordinator},
              {"root", options.root},
              {"node", options.node},
              {"version", cairn::kVersion}});

  pollfd polled[] = {{signal_fd, POLLIN, 0}, {fatal_fd, POLLIN, 0}};
  while (poll(polled, 2, -1) < 0) {
  }
  const bool fatal = polled[1].revents != 0;
  if (!fatal) {
    signalfd_siginfo info = {};
    (void)!read(signal_fd, &info, sizeof(info));
    cairn::Log(cairn::LogLevel::kInfo, "draining", {{"timeout", drain_timeout}});
    // A second signal ends the process at once.
    pthread_sigmask(SIG_UNBLOCK, &signals, nullptr);
    if (!(*agent)->Drain(*drain)) cairn::Log(cairn::LogLevel::kWarn, "drain_timed_out");
  }
  (*agent)->Quiesce();
  (*server)->Shutdown(absl::Milliseconds(500));
  (*agent)->Stop(!fatal);
  cairn::Log(cairn::LogLevel::kInfo, "ended");
  return fatal ? Fail(refused) : 0;
}

// cairn-agent: moves the bytes of one rank.
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "agent/runtime/agent.h"
#include "agent/runtime/agent_metrics.h"
#include "agent/sockets/peer.h"
#include "agent/sockets/socket_directory.h"
#include "agent/trainer_service/checkpoint_relay.h"
#include "agent/trainer_service/local_server.h"
#include "agent/trainer_service/local_service.h"
#include "agent/transport/host_exchange.h"
#include "agent/transport/nccl/nccl_exchange.h"
#include "common/base/duration_text.h"
#include "common/base/version.h"
#include "common/base/version_text.h"
#include "common/file/unique_fd.h"
#include "common/format/checkpoint_path.h"
#include "common/metrics/metrics_server.h"
#include "common/process/address_file.h"
#include "common/process/arguments.h"
#include "common/process/ending.h"
#include "common/process/log.h"
#include "common/process/quantity.h"
#include "common/resources/memory.h"
#include "common/resources/open_files.h"
#include "common/rpc/address.h"
#include "common/rpc/listening_sockets.h"
#include "common/status/reason.h"
#include "common/status/status.h"

namespace {

constexpr char kFooter[] = R"(Examples:
  cairn-agent --coordinator 127.0.0.1:7420 --job demo --rank 0 --world-size 4 --root /ckpt
  CAIRN_COORDINATOR=coordinator:7420 CAIRN_JOB=llm RANK=3 WORLD_SIZE=64 cairn-agent --root /ckpt \
      --listen 0.0.0.0:7421 --token-file /etc/cairn/token

Every flag can also be given as CAIRN_<FLAG>, for example CAIRN_MEMORY_BUDGET=64GiB. A trainer finds its agent by
CAIRN_AGENT, the address that --address-file is given. SIGTERM drains: staged saves are finished first.)";

// The flags as they are given.
struct Flags {
  cairn::AgentOptions agent;  // those that need no reading
  cairn::NcclExchangeOptions exchange;
  std::string memory_budget = "0";
  std::string round_bytes = "32MiB";
  std::string write_bandwidth = "0";
  std::string shared_memory = "auto";
  std::string io = "auto";
  std::string slab_loads = "auto";
  std::string nccl = "auto";
  std::string nccl_saves = "never";
  bool nccl_trusted_network = false;
  std::string address_file;
  std::string metrics_listen;
  std::string drain_timeout = "10m";
  std::string register_timeout = "20s";
};

// The settings that the flags give.
struct Settings {
  cairn::AgentOptions agent;
  cairn::NcclExchangeOptions exchange;
  std::string address_file;
  std::string metrics_listen;
  absl::Duration drain_timeout;
};

constexpr char kUnix[] = "unix:";

std::string WhyNoMetricsAddress(const std::string& address) {
  if (address.starts_with(absl::StrCat(kUnix, "/"))) return "";
  return cairn::HostPortLike("127.0.0.1:9421, or unix:/PATH")(address);
}

void AddFlags(Flags& flags, cairn::ArgumentParser& app) {
  const auto add = [&app](const std::string& flag, auto& value, const std::string& help) {
    return app.AddSetting(flag, value, help);
  };
  const auto host_port = cairn::HostPortLike("10.0.0.1:7420 or [fd00::1]:7420");
  add("--coordinator", flags.agent.coordinator, "address of the coordinator, host:port").Required().Fits(host_port);
  add("--job", flags.agent.job, "name of the training job").Required();
  add("--rank", flags.agent.rank, "rank of the trainer (also RANK)").FromEnvironment("RANK").Required();
  add("--world-size", flags.agent.world_size, "number of ranks of the job (also WORLD_SIZE)")
      .FromEnvironment("WORLD_SIZE")
      .Required();
  add("--root", flags.agent.root, "directory of all checkpoints, the same for coordinator and agents").Required();
  add("--listen", flags.agent.listen, "where other agents connect; other than loopback needs --token-file")
      .Fits(host_port);
  add("--advertise", flags.agent.advertise, "address that other agents are told, if it is not the one of --listen")
      .Fits(host_port);
  add("--socket-directory", flags.agent.socket_directory,
      "directory of the trainer's socket (default: below XDG_RUNTIME_DIR or /tmp)");
  add("--memory-budget", flags.memory_budget,
      "largest shared memory for staging and reading; 0: what container and machine allow");
  add("--round-bytes", flags.round_bytes, "largest read buffer; an agent holds two");
  add("--huge-pages", flags.agent.huge_pages,
      "take staging and read buffers from huge pages of 2 MiB that were set aside on this machine (HugeTLB), where "
      "enough are free");
  add("--write-bandwidth", flags.write_bandwidth,
      "most bytes per second that saves of this agent write, for example 500MB, at least 1MiB; 0: as quickly as "
      "storage "
      "takes them");
  add("--io-threads", flags.agent.io_threads, "threads that write and read files; at least 16 in an object store")
      .Between(1, 64);
  add("--io", flags.io,
      "auto: direct, but loads through the page cache if the state is small beside free memory; buffered: always "
      "through the page cache")
      .OneOf({"auto", "buffered"});
  add("--shared-memory", flags.shared_memory,
      "auto: with agents of this machine; never: bytes between agents go over the network")
      .OneOf({"auto", "never"});
  add("--slab-loads", flags.slab_loads,
      "auto: loads take from the staging buffer what it still holds of the last committed save; never: all is read "
      "from files")
      .OneOf({"auto", "never"});
  add("--nccl", flags.nccl,
      "experimental. auto: bytes of loads and reshards go over NCCL between ranks that share no memory, if all ranks "
      "can; never; require: such an operation fails if they cannot")
      .OneOf({"never", "auto", "require"});
  add("--nccl-saves", flags.nccl_saves,
      "experimental. The same for shards that move between ranks in a save; the trainers share their GPUs with it "
      "meanwhile")
      .OneOf({"never", "auto", "require"});
  add("--nccl-trusted-network", flags.nccl_trusted_network,
      "the network between the machines may see the bytes, which NCCL sends as plain text");
  add("--nccl-device", flags.exchange.device, "number of the GPU by which this rank takes part (also LOCAL_RANK)")
      .FromEnvironment("LOCAL_RANK");
  add("--libcuda", flags.agent.gpu_worker.libcuda, "CUDA's driver: a name that the loader looks up, or a path");
  add("--libnccl", flags.agent.gpu_worker.libnccl, "NCCL: a name that the loader looks up, or a path");
  add("--node", flags.agent.node, "name of this machine, for people and for planning (default: the host's name)");
  add("--allow-uid", flags.agent.allowed_users, "user whose trainers may connect besides this agent's own")
      .SplitAt(',');
  add("--import-root", flags.agent.import_roots,
      "with --allow-uid: directory, s3://BUCKET/PREFIX or gs://BUCKET/PREFIX below which loads may read files of other "
      "libraries (default: "
      "none)")
      .SplitAt(',');
  cairn::Argument token_file =
      add("--token-file", flags.agent.token_file,
          "file with the secret that coordinator and agents share (default: looked for by the coordinator's address in "
          "this user's runtime directory, then in <root>/.cairn/token)");
  add("--insecure", flags.agent.insecure, "have no token, and ask coordinator and other agents for none")
      .Excludes(token_file);
  add("--address-file", flags.address_file, "written when the agent serves: the address for CAIRN_AGENT");
  add("--metrics-listen", flags.metrics_listen,
      "address at which Prometheus finds /metrics, without a token (default: none)")
      .Fits(WhyNoMetricsAddress);
  add("--drain-timeout", flags.drain_timeout, "how long SIGTERM waits for staged saves");
  add("--register-timeout", flags.register_timeout,
      "how long a rank that another agent still holds is asked for again, and a token looked for that the coordinator "
      "takes; more than the coordinator's --lease-ttl");
}

std::string HostName() {
  char name[256] = {};
  if (gethostname(name, sizeof(name) - 1) != 0) return "unknown";
  return name;
}

cairn::v1::NcclSupport::Policy PolicyNamed(const std::string& name) {
  return name == "never"  ? cairn::v1::NcclSupport::NEVER
         : name == "auto" ? cairn::v1::NcclSupport::AUTO
                          : cairn::v1::NcclSupport::REQUIRE;
}

// A piece of a file must be written well within any phase timeout, which it is progress for.
constexpr int64_t kLeastWriteBandwidth = int64_t{1} << 20;

absl::StatusOr<Settings> ReadFlags(const Flags& flags) {
  Settings settings = {flags.agent, flags.exchange, flags.address_file, flags.metrics_listen, absl::ZeroDuration()};
  cairn::AgentOptions& agent = settings.agent;
  CAIRN_ASSIGN_OR_RETURN(const auto memory_budget, cairn::ParseSize(flags.memory_budget));
  CAIRN_ASSIGN_OR_RETURN(const auto round_bytes, cairn::ParseSize(flags.round_bytes));
  CAIRN_ASSIGN_OR_RETURN(const auto write_bandwidth, cairn::ParseSize(flags.write_bandwidth));
  CAIRN_ASSIGN_OR_RETURN(settings.drain_timeout, cairn::ParseDurationOf("--drain-timeout", flags.drain_timeout));
  CAIRN_ASSIGN_OR_RETURN(agent.register_timeout, cairn::ParseDurationOf("--register-timeout", flags.register_timeout));
  CAIRN_RETURN_IF_ERROR(cairn::CheckJobName(agent.job));
  if (agent.rank >= agent.world_size) {
    return cairn::MakeError(cairn::Reason::kRankOutOfRange,
                            absl::StrCat("rank ", agent.rank, " of a world of ", agent.world_size));
  }
  agent.memory_budget = static_cast<uint64_t>(memory_budget);
  agent.round_bytes = static_cast<uint64_t>(round_bytes);
  agent.write_bandwidth = static_cast<uint64_t>(write_bandwidth);
  if (write_bandwidth > 0 && write_bandwidth < kLeastWriteBandwidth) {
    return cairn::MakeError(cairn::Reason::kBadRequest,
                            absl::StrCat("--write-bandwidth=", flags.write_bandwidth, " is below ",
                                         kLeastWriteBandwidth, " bytes per second, so slow that saves look stalled"),
                            {{"next", "Give at least 1MiB, or leave the flag out."}});
  }
  agent.shared_memory = flags.shared_memory == "auto";
  agent.direct_io = flags.io == "auto";
  agent.slab_loads = flags.slab_loads == "auto";
  cairn::v1::NcclSupport& nccl = settings.exchange.policies;
  nccl.set_policy(PolicyNamed(flags.nccl));
  nccl.set_saves_policy(PolicyNamed(flags.nccl_saves));
  nccl.set_trusted_network(flags.nccl_trusted_network);
  nccl.set_shared_memory(agent.shared_memory);
  std::error_code unknown;  // then there is no worker, and NCCL is not used
  agent.gpu_worker.program =
      std::filesystem::read_symlink("/proc/self/exe", unknown).parent_path() / "cairn-gpu-worker";
  settings.exchange.worker = agent.gpu_worker;
  if (agent.node.empty()) agent.node = HostName();
  if (agent.socket_directory.empty()) agent.socket_directory = cairn::DefaultSocketDirectory(agent.job, agent.rank);
  return settings;
}

void LogServing(const cairn::Agent& agent, const cairn::AgentOptions& options, const std::string& address,
                const std::string& metrics) {
  cairn::Log(cairn::LogLevel::kInfo, "serving",
             {{"address", address},
              {"transfer", agent.transfer_address()},
              {"coordinator", options.coordinator},
              {"root", options.root},
              {"node", options.node},
              {"version", cairn::kVersion},
              {"metrics", metrics}});
}

absl::Status Drain(cairn::Agent& agent, absl::Duration timeout) {
  cairn::Log(cairn::LogLevel::kInfo, "draining", {{"timeout", cairn::DurationText(timeout)}});
  const absl::Status drained = agent.Drain(timeout);
  if (!drained.ok()) cairn::Log(cairn::LogLevel::kError, "drain_timed_out", {{"error", drained}});
  return cairn::WithMetadata(
      drained, {{"next",
                 "Give saves more time by --drain-timeout; whoever sent the signal must wait for longer than that (in "
                 "Kubernetes terminationGracePeriodSeconds)."}});
}

// A token that was written into the file is known after so long.
constexpr absl::Duration kReadTokensEach = absl::Seconds(5);

// One rank exchanges nothing, and neither does an agent that never may.
std::unique_ptr<cairn::Exchange> MakeExchange(const Settings& settings) {
  const cairn::v1::NcclSupport& nccl = settings.exchange.policies;
  const auto never = cairn::v1::NcclSupport::NEVER;
  if (settings.agent.world_size == 1 || (nccl.policy() == never && nccl.saves_policy() == never)) {
    return std::make_unique<cairn::HostExchange>(nccl);
  }
  return std::make_unique<cairn::NcclExchange>(settings.exchange);
}

// Binds where metrics are served, but for this user alone if it is a Unix socket. Nothing is bound without an address.
absl::StatusOr<cairn::ListeningSockets> ListenForMetrics(const Settings& settings) {
  cairn::ListeningSockets listening;
  if (settings.metrics_listen.empty()) return listening;
  if (!settings.metrics_listen.starts_with(kUnix)) {
    return cairn::ListenAt("--metrics-listen", settings.metrics_listen);
  }
  // It is usually in the agent's own directory.
  CAIRN_RETURN_IF_ERROR(cairn::PrepareSocketDirectory(settings.agent.socket_directory,
                                                      !cairn::UserPolicy(settings.agent.allowed_users).only_self()));
  CAIRN_ASSIGN_OR_RETURN(
      cairn::UniqueFd socket,
      cairn::ListenOnUnixSocket(settings.metrics_listen.substr(sizeof(kUnix) - 1), /*others_may_enter=*/false));
  listening.sockets.push_back(std::move(socket));
  listening.address = settings.metrics_listen;
  return listening;
}

// Serves until something ends it. Returns what went wrong.
absl::Status Serve(Settings settings) {
  cairn::Ending ending;
  settings.agent.on_fatal = [&ending](const absl::Status& error) { ending.OnError(error); };
  const cairn::AgentOptions& options = settings.agent;
  // Other agents take bytes from it, each by a connection of its own.
  cairn::RaiseOpenFileLimit();

  // A port that is taken is told before the rank is served.
  CAIRN_ASSIGN_OR_RETURN(cairn::ListeningSockets metrics_sockets, ListenForMetrics(settings));
  CAIRN_ASSIGN_OR_RETURN(const auto agent, cairn::Agent::Start(options, MakeExchange(settings)));
  cairn::LocalService service(*agent);
  cairn::CheckpointRelay relay(*agent);
  CAIRN_ASSIGN_OR_RETURN(const auto server,
                         cairn::LocalServer::Listen(options.socket_directory + "/agent.sock",
                                                    cairn::UserPolicy(options.allowed_users), {&service, &relay}));
  service.SetCallerLookup([&server](const std::string& peer) { return server->CallerOf(peer); });
  CAIRN_RETURN_IF_ERROR(server->Serve());
  std::unique_ptr<cairn::MetricsServer> metrics;
  if (!metrics_sockets.sockets.empty()) {
    CAIRN_ASSIGN_OR_RETURN(metrics, cairn::MetricsServer::Start(std::move(metrics_sockets.sockets),
                                                                {std::make_shared<cairn::AgentMetrics>(*agent)}));
  }
  const std::string address = kUnix + server->path();
  if (!settings.address_file.empty()) {
    CAIRN_RETURN_IF_ERROR(cairn::WriteAddressFile(settings.address_file, address));
  }
  LogServing(*agent, options, address, metrics_sockets.address);

  ending.Await(kReadTokensEach, [&agent] { agent->ReadTokens(); });
  ending.LetSignalsThrough();
  const absl::Status drained = ending.Error().ok() ? Drain(*agent, settings.drain_timeout) : absl::OkStatus();
  const absl::Status fatal = ending.Error();
  agent->Quiesce();
  server->Shutdown(absl::Milliseconds(500));
  agent->Stop(fatal.ok());
  cairn::Log(cairn::LogLevel::kInfo, "ended");
  return fatal.ok() ? drained : fatal;
}

}  // namespace

int main(int argc, char** argv) {
  cairn::ArgumentParser app("cairn-agent",
                            "The agent of one rank: stages, writes, reads and exchanges its part of checkpoints.",
                            cairn::VersionText("cairn-agent"));
  app.Footer(kFooter);
  Flags flags;
  AddFlags(flags, app);
  if (const std::optional<int> exit_status = app.Parse(argc, argv)) return *exit_status;
  const absl::StatusOr<Settings> settings = ReadFlags(flags);
  if (!settings.ok()) return cairn::ExitStatusOf(settings.status(), cairn::kExitUsage);
  cairn::SetLogContext({{"job", settings->agent.job}, {"rank", settings->agent.rank}});
  return cairn::ExitStatusOf(cairn::WithMemory("to serve", [&] { return Serve(*settings); }));
}

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "cli/base/interrupt.h"
#include "cli/commands/commands.h"
#include "cli/local/local_cluster.h"
#include "cli/local/sidecar_metrics.h"
#include "common/base/clock.h"
#include "common/metrics/metrics_server.h"
#include "common/process/quantity.h"
#include "common/rpc/address.h"
#include "common/rpc/listening_sockets.h"
#include "common/status/reason.h"
#include "common/status/status.h"

namespace cairn::cli {
namespace {

// The pod's volumes, its network and its coordinator may come later than its containers.
constexpr absl::Duration kStartTimeout = absl::Minutes(2);
constexpr absl::Duration kTendInterval = absl::Milliseconds(100);
// Agents end by themselves after the drain's timeout. This is for what comes behind it.
constexpr absl::Duration kEndOfAgents = absl::Seconds(10);

struct Arguments {
  LocalClusterOptions cluster;
  std::string metrics_listen;
  std::string drain_timeout = "10m";
};

// Kubernetes gives a variable for a label or an annotation that is not there an empty text. If that were the default,
// every pod would be the only one of a job, and would commit checkpoints of its own ranks alone.
absl::Status CheckPlaceIsTold() {
  constexpr std::pair<const char*, const char*> kVariables[] = {
      {"CAIRN_RANKS", "the number of ranks of each pod, which the annotation cairn/ranks-per-pod gives"},
      {"CAIRN_NODES", "the number of pods, which the annotation cairn/pods gives"},
      {"CAIRN_NODE_RANK", "the number of this pod, such as the completion index of an Indexed Job"}};
  for (const auto& [variable, what] : kVariables) {
    const char* const value = std::getenv(variable);
    if (value == nullptr || *value != '\0') continue;
    return MakeError(Reason::kBadRequest, absl::StrCat(variable, " is empty: it is ", what),
                     {{"variable", variable},
                      {"next", "Give the pod template what the variable is read from, or unset the variable."}});
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<MetricsServer>> ServeMetrics(const std::string& address,
                                                            const std::shared_ptr<SidecarMetrics>& metrics) {
  CAIRN_ASSIGN_OR_RETURN(ListeningSockets listening, ListenAt("--metrics-listen", address));
  return MetricsServer::Start(
      std::move(listening.sockets), {metrics},
      {.others = [metrics] { return metrics->OfAgents(); }, .serving = [metrics] { return metrics->serving(); }});
}

absl::Status Agents(const CommandContext& context, const Arguments& arguments) {
  InterruptFlag();  // from now on, SIGTERM drains
  LocalClusterOptions options = arguments.cluster;
  CAIRN_ASSIGN_OR_RETURN(const absl::Duration drain_timeout, ParseDuration(arguments.drain_timeout));
  options.agent_flags = {"--drain-timeout", arguments.drain_timeout};
  options.no_coordinator = true;
  options.sidecar = true;
  options.start_timeout = kStartTimeout;
  CAIRN_RETURN_IF_ERROR(CheckPlaceIsTold());
  options.agent_metrics = !arguments.metrics_listen.empty();
  const auto metrics = std::make_shared<SidecarMetrics>(options.job);
  // A port that is taken is told before any rank is served.
  std::unique_ptr<MetricsServer> server;
  if (options.agent_metrics) {
    CAIRN_ASSIGN_OR_RETURN(server, ServeMetrics(arguments.metrics_listen, metrics));
  }
  LocalCluster cluster(options, context);
  if (const absl::Status started = cluster.Start(); !started.ok()) {
    return WithMetadata(started, {{"job", options.job}, {"root", options.root}});
  }
  metrics->Set(cluster.running(), cluster.restarts());
  metrics->SetServing(cluster.metrics_sockets());
  const int first = options.node * options.ranks;
  std::fprintf(stderr, "cairn: the agents of ranks %d to %d of job %s serve: CAIRN_AGENT=%s\n", first,
               first + options.ranks - 1, options.job.c_str(), cluster.agent_pattern().c_str());
  while (!InterruptFlag()) {
    for (const std::string& said : cluster.Tend()) std::fprintf(stderr, "cairn: %s\n", said.c_str());
    cluster.ReapOrphans();
    metrics->Set(cluster.running(), cluster.restarts());
    absl::SleepFor(kTendInterval);
  }
  const absl::Time deadline = Clock::Real().SteadyNow() + drain_timeout + kEndOfAgents;
  cluster.Drain([&] { return Clock::Real().SteadyNow() >= deadline; });
  const std::vector<std::string> bad = cluster.AgentsThatEndedBadly();
  if (bad.empty()) return absl::OkStatus();
  return MakeError(Reason::kTimedOut, absl::StrJoin(bad, ", "),
                   {{"job", options.job},
                    {"next",
                     "Read what they have printed before this. If saves need longer to end, raise --drain-timeout, and "
                     "the time for which whoever sends SIGTERM waits (in Kubernetes terminationGracePeriodSeconds)."}});
}

}  // namespace

void AddAgentsCommand(Command app, CommandContext& context) {
  auto arguments = std::make_shared<Arguments>();
  LocalClusterOptions& cluster = arguments->cluster;
  cluster.job.clear();  // in a cluster no job is the default
  Command command = app.AddCommand("agents", "Runs the agents of all ranks of a pod, as its sidecar, until SIGTERM");
  const auto host_port = HostPortLike("0.0.0.0:7421 or [fd00::1]:7421");
  command.AddSetting("--job", cluster.job, "The job's name").Required();
  command.AddSetting("--root", cluster.root, "Root of all checkpoints, the same for coordinator and agents").Required();
  command.AddSetting("--ranks", cluster.ranks, "Number of ranks of each pod: torchrun's --nproc-per-node")
      .Between(1, 4096);
  command.AddSetting("--nodes", cluster.nodes, "Number of pods of the job: torchrun's --nnodes").Between(1, 4096);
  command
      .AddSetting("--node-rank", cluster.node,
                  "The number of this pod, from 0: torchrun's --node-rank. Its first rank is this number x --ranks")
      .Between(0, 4095);
  command.AddSetting("--run-directory", cluster.run_directory,
                     "Directory of the agents' sockets, which all trainers of the pod see (default: one of this user)");
  command
      .AddSetting("--listen", cluster.listen,
                  "Where the first agent listens for other agents; the next agents take the next ports")
      .Fits(host_port);
  command
      .AddSetting("--advertise", cluster.advertise,
                  "The first agent's address for other agents, if it is not that of --listen")
      .Fits(host_port);
  command
      .AddSetting("--metrics-listen", arguments->metrics_listen,
                  "Where this command serves /metrics of itself and of all agents, which have the label rank, and "
                  "/serving, which answers 200 when all agents serve and 503 before")
      .Fits(host_port);
  command.AddSetting("--drain-timeout", arguments->drain_timeout, "How long SIGTERM waits for staged saves");
  command.Footer(
      "Example:\n"
      "  cairn agents --coordinator coordinator:7420 --job llm --root /checkpoints --ranks 8 --nodes 2 --node-rank 0 "
      "\\\n"
      "      --listen 0.0.0.0:7421 --advertise 10.0.0.1:7421 --run-directory /run/cairn/agents\n"
      "Every option can also be given as CAIRN_<OPTION>, and every flag of cairn-agent too, which all agents then "
      "have.\n"
      "An agent that ends is started again, alone. Messages of all agents go to standard error.\n"
      "Exit status: 0 ended by SIGTERM, 1 or 3 an agent did not start, 3 an agent did not end well after SIGTERM\n"
      "(a save had no outcome in time), 130 interrupted before all served.");
  command.Action([arguments, &context] { context.exit_status = ReportError(context, Agents(context, *arguments)); });
}

}  // namespace cairn::cli

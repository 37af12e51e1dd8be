#include "benchmarks/control_plane/fleet.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "common/rpc/peer_channel.h"
#include "common/status/status.h"

namespace cairn {
namespace {

constexpr int kRanksPerConnection = 64;
constexpr uint32_t kSeed = 1;
// More than any call may take.
constexpr absl::Duration kLastCalls = absl::Seconds(45);

}  // namespace

absl::StatusOr<std::unique_ptr<Fleet>> Fleet::Make(EventLoop& loop, FleetOptions options) {
  std::unique_ptr<PosixStorage> storage;
  if (!options.root.empty()) {
    CAIRN_ASSIGN_OR_RETURN(storage, PosixStorage::Open(options.root, /*create=*/false));
  }
  // The coordinator may make its token later, so it is looked for again with each connection that is refused.
  CAIRN_ASSIGN_OR_RETURN(auto tokens, TokenSource::Open({.insecure = options.root.empty(), .root = options.root}));
  return std::unique_ptr<Fleet>(new Fleet(loop, std::move(options), std::move(storage), std::move(tokens)));
}

Fleet::Fleet(EventLoop& loop, FleetOptions options, std::unique_ptr<PosixStorage> storage,
             std::shared_ptr<TokenSource> tokens)
    : loop_(loop),
      options_(std::move(options)),
      storage_(std::move(storage)),
      tokens_(std::move(tokens)),
      surroundings_{.loop = loop_, .address = options_.address, .storage = storage_.get()},
      random_(kSeed) {
  surroundings_.reached = [this](Milestone milestone, int) {
    MilestoneTimes& times = times_[milestone];
    times.last = SteadyNow();
    if (times.ranks++ == 0) times.first = times.last;
  };
  const int connections = options_.connections > 0 ? options_.connections
                                                   : (options_.ranks + kRanksPerConnection - 1) / kRanksPerConnection;
  std::vector<std::shared_ptr<PeerChannel>> channels;
  channels.reserve(static_cast<size_t>(connections));
  for (int i = 0; i < connections; ++i) {
    channels.push_back(std::make_shared<PeerChannel>(
        PeerOptions{.address = options_.address, .role = ServerRole::kCoordinator, .tokens = tokens_}));
  }
  std::uniform_real_distribution<double> about(0.5, 1.5);
  for (int rank = 0; rank < options_.ranks; ++rank) {
    ThinAgentOptions agent;
    agent.job = options_.job;
    agent.rank = rank;
    agent.world_size = options_.ranks;
    agent.layout = LayoutOf(options_.model, rank, options_.ranks);
    const bool slow = rank >= options_.ranks - options_.slow;
    agent.dies_before_writing = !slow && rank >= options_.ranks - options_.slow - options_.dead;
    agent.stage_time = (slow ? options_.slow_time : options_.stage_time) * about(random_);
    agent.write_time = (slow ? options_.slow_time : options_.write_time) * about(random_);
    agent.read_time = options_.read_time * about(random_);
    agent.ask_every = options_.ask_every;
    agent.answered = options_.answered;
    agents_.push_back(std::make_unique<ThinAgent>(surroundings_, channels[static_cast<size_t>(rank % connections)],
                                                  std::move(agent)));
  }
}

Fleet::~Fleet() {
  for (auto& agent : agents_) agent->Stop();
  // Tasks that are posted or timed still name the agents: they run, and find them stopped.
  if (!loop_.RunUntil([this] { return surroundings_.calls == 0; }, kLastCalls)) {
    std::fprintf(stderr, "%s: %d calls did not end; what they would touch goes now\n", options_.job.c_str(),
                 surroundings_.calls);
    std::abort();
  }
  loop_.Forget(&surroundings_);
}

absl::Duration Fleet::Within(absl::Duration spread) {
  return spread * std::uniform_real_distribution<double>(0, 1)(random_);
}

void Fleet::Start() {
  for (auto& agent : agents_) surroundings_.After(Within(options_.start_spread), [&agent] { agent->Start(); });
}

void Fleet::Save(int64_t step) {
  for (auto& agent : agents_) surroundings_.After(Within(options_.call_spread), [&agent, step] { agent->Save(step); });
}

void Fleet::Load(uint64_t number, std::optional<int64_t> step) {
  for (auto& agent : agents_) {
    surroundings_.After(Within(options_.call_spread), [&agent, number, step] { agent->Load(number, step); });
  }
}

bool Fleet::Leave(absl::Duration timeout) {
  for (auto& agent : agents_) agent->Leave();
  return loop_.RunUntil([this] { return surroundings_.calls == 0; }, timeout);
}

bool Fleet::WaitFor(Milestone milestone, int ranks, absl::Duration timeout) {
  const MilestoneTimes& times = times_[milestone];
  const MilestoneTimes& refused = times_[Milestone::kRefused];
  loop_.RunUntil([&] { return times.ranks >= ranks || refused.ranks > 0; }, timeout);
  return times.ranks >= ranks;
}

bool Fleet::WaitOutcome(absl::Duration timeout) {
  const MilestoneTimes& committed = times_[Milestone::kCommitted];
  const MilestoneTimes& aborted = times_[Milestone::kAborted];
  loop_.RunUntil([&] { return committed.ranks + aborted.ranks >= living(); }, timeout);
  return committed.ranks >= living();
}

void Fleet::ForgetMilestones() {
  for (auto& [milestone, times] : times_) times = MilestoneTimes();
}

void Fleet::StartCounting() {
  ForgetMilestones();
  surroundings_.counters = AgentCounters();
  for (auto& agent : agents_) agent->StartSilence();
}

absl::Status Fleet::error() const {
  for (const auto& agent : agents_) CAIRN_RETURN_IF_ERROR(agent->error());
  return absl::OkStatus();
}

}  // namespace cairn

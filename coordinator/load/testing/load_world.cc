#include "coordinator/load/testing/load_world.h"

#include <variant>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/base/digest.h"
#include "common/status/status_proto.h"

namespace cairn {
namespace {

constexpr char kJob[] = "sim";
// With a number of 16 digits before it, this is as long as an id of NCCL.
const std::string& kIdEnd = *new std::string(112, 'i');
constexpr absl::Duration kPhaseTimeout = absl::Seconds(20);
constexpr absl::Duration kLease = absl::Seconds(4);
constexpr absl::Duration kStorm = absl::Seconds(90);
// Until whoever waited alone when the storm ended has been told so, and has met the others.
constexpr absl::Duration kCalm = absl::Seconds(90);
// A step of an exchange over NCCL that has not ended by then is given up.
constexpr absl::Duration kStall = absl::Seconds(5);
// How long ranks may read by two tokens before they hear why that cannot end.
constexpr absl::Duration kSplitTime = absl::Seconds(4);

}  // namespace

LoadWorld::LoadWorld(uint64_t seed, int ranks, Calls calls)
    : Simulation(seed),
      reshards_(calls == Calls::kReshards),
      exchanges_bytes_(calls != Calls::kLoads),
      ranks_(static_cast<size_t>(ranks)) {
  for (int rank = 0; rank < ranks; ++rank) {
    ranks_[static_cast<size_t>(rank)].rank = rank;
    NewAgent(ranks_[static_cast<size_t>(rank)]);
  }
  StartCoordinator();
}

void LoadWorld::InCore(const std::function<void(const Moment&)>& event) {
  event(Moment{now_, now_});
  // The bookkeeping of every event must be what follows from looking at everything.
  if (const std::string missed = core_->Missed(); !missed.empty()) Violation(missed);
  for (const LogEvent& line : core_->TakeLog()) Log(absl::StrCat("epoch=", epoch_, " ", line.Text()));
  for (CoreAction& action : core_->TakeActions()) {
    After(Delay(), [this, epoch = epoch_, action = std::move(action)] {
      if (epoch == epoch_) Execute(action);
    });
  }
}

void LoadWorld::NewTrainer(Rank& rank) {
  End(rank);
  for (auto& [key, state] : rank.calls) Fail(state, Reason::kTrainerLost, "the trainer ended");
  rank.trainer = ++next_id_;
  rank.number = 0;
}

void LoadWorld::Send(const std::function<void()>& deliver) {
  if (stormy() && Chance(0.05)) return;
  After(Delay(), deliver);
  if (stormy() && Chance(0.05)) After(Delay(), deliver);
}

std::string LoadWorld::Run() {
  stormy_until_ = now_ + kStorm;
  for (Rank& rank : ranks_) {
    After(Delay(), [this, &rank] { Synchronize(rank); });
    After(Delay(), [this, &rank] { Train(rank); });
  }
  After(absl::Milliseconds(100), [this] { Tick(); });
  After(absl::Seconds(1), [this] { Disturb(); });
  Until(stormy_until_);
  for (Rank& rank : ranks_) rank.done = rank.failed = 0;
  // Everyone calls until it succeeds.
  Until(stormy_until_ + kCalm);
  for (const Rank& rank : ranks_) {
    if (rank.done == 0) Violation(absl::StrCat("rank ", rank.rank, " met nobody after the storm"));
  }
  // Then everyone calls once more, whatever number that is.
  for (int round = 0; round < 3 && violation().empty(); ++round) {
    for (Rank& rank : ranks_) {
      rank.done = rank.failed = 0;
      After(absl::Milliseconds(Pick(1000)), [this, &rank] { Begin(rank, absl::Hours(1)); });
    }
    Until(now_ + absl::Seconds(5));
    for (const Rank& rank : ranks_) {
      if (rank.done != 1 || rank.failed != 0) {
        Violation(absl::StrCat("rank ", rank.rank, " loaded ", rank.done, " times and failed ", rank.failed,
                               " times in a round without faults"));
      }
    }
  }
  for (const auto& hold : holds_) {
    if (!hold.expired()) Violation("the plan of a load that has ended is kept");
  }
  return violation();
}

void LoadWorld::StartCoordinator() {
  DecisionOptions options;
  options.coordinator_epoch = ++epoch_;
  options.phase_timeout = kPhaseTimeout;
  options.lease_ttl = kLease;
  core_ = std::make_unique<TestJob>(kJob, options, now_);
}

void LoadWorld::Execute(const CoreAction& action) {
  InCore([&](const Moment& moment) {
    if (std::holds_alternative<RecoverJob>(action)) {
      StoredAttempt outcome;
      outcome.step = 7;
      outcome.attempt = 1;
      outcome.committed = true;
      core_->job.OnRecovered(StoredAttempts{outcome}, moment);
    } else if (const auto* plan = std::get_if<PlanLoad>(&action); plan != nullptr) {
      if (plan->layout.size() != ranks_.size()) Violation("a plan for some of the ranks");
      PlannedLoad planned;
      planned.step = 7;
      planned.world_size = 1;
      planned.plan_digest = "plan";
      planned.transport_bytes = exchanges_bytes_ ? uint64_t{1} << 30 : 0;
      // The token follows from the operation alone, whichever coordinator gives it.
      planned.transfer_token = absl::BytesToHexString(plan->calls_digest);
      planned.hold = std::make_shared<const int>(0);
      holds_.push_back(planned.hold);
      core_->job.OnLoadPlanned(plan->number, plan->ticket, planned, moment);
    }
  });
}

void LoadWorld::Tick() {
  core_->Tick({now_, now_});
  InCore([](const Moment&) {});
  After(absl::Milliseconds(100), [this] { Tick(); });
}

void LoadWorld::NewAgent(Rank& rank) {
  const int index = rank.rank;
  End(rank);
  rank.agent = ++next_id_;
  rank.epoch = 0;
  rank.registered = false;
  rank.sequence = 0;
  rank.calls.clear();
  rank.group.Clear();
  rank.rank = index;
  NewTrainer(rank);
}

void LoadWorld::Fail(v1::LoadState& state, Reason reason, const std::string& what) {
  if (state.phase() == v1::Phase::FAILED) return;
  state.set_phase(v1::Phase::FAILED);
  *state.mutable_error() = StatusToProto(MakeError(reason, what));
}

void LoadWorld::Begin(Rank& rank, absl::Duration timeout) {
  if (rank.calling || rank.trainer == 0) return;
  for (auto& [key, state] : rank.calls) {
    if (key.first == rank.trainer) Fail(state, Reason::kInterrupted, "another call");
  }
  v1::LoadState& state = rank.calls[{rank.trainer, ++rank.number}];
  state.set_number(rank.number);
  state.set_trainer_incarnation(rank.trainer);
  state.set_phase(v1::Phase::PLANNING);
  state.set_layout_digest(absl::StrCat("layout", rank.rank));
  if (reshards_ || (stormy() && Chance(0.05))) state.set_source_layout_digest(state.layout_digest());
  rank.calling = true;
  rank.called = now_;
  rank.gives_up = now_ + timeout;
}

void LoadWorld::Train(Rank& rank) {
  After(absl::Milliseconds(50 + Pick(100)), [this, &rank] { Train(rank); });
  if (rank.trainer == 0) {
    if (!stormy() || Chance(0.05)) NewTrainer(rank);
    return;
  }
  if (!rank.calling) {
    // A rank may have heard the end of a load that another's trainer did not live to hear: all call until all have.
    const bool wanted = std::any_of(ranks_.begin(), ranks_.end(), [](const Rank& each) { return each.done == 0; });
    if (stormy() ? Chance(0.1) : wanted && now_ < stormy_until_ + kCalm) {
      Begin(rank, stormy() && Chance(0.5) ? absl::Milliseconds(Pick(5000)) : absl::Hours(1));
    }
    return;
  }
  if (now_ >= rank.gives_up) {
    ++given_up_;
    End(rank);
    Fail(rank.calls[{rank.trainer, rank.number}], Reason::kTimedOut, "no plan in time");
  } else if (now_ - rank.called > 3 * kPhaseTimeout) {
    Violation(absl::StrCat("rank ", rank.rank, " has been in load ", rank.number, " for ",
                           absl::FormatDuration(now_ - rank.called)));
  }
}

v1::AgentIdentity LoadWorld::Identity(const Rank& rank) const {
  v1::AgentIdentity identity;
  identity.set_job(kJob);
  identity.set_rank(static_cast<uint32_t>(rank.rank));
  identity.set_incarnation(rank.agent);
  identity.set_coordinator_epoch(rank.epoch);
  return identity;
}

void LoadWorld::Register(Rank& rank) {
  v1::RegisterAgentRequest request;
  *request.mutable_agent() = Identity(rank);
  request.set_world_size(static_cast<uint32_t>(ranks_.size()));
  if (exchanges_bytes_) {
    request.mutable_nccl()->set_policy(v1::NcclSupport::AUTO);
    request.mutable_nccl()->set_version(22809);
  }
  Send([this, &rank, request] {
    InCore([&](const Moment& moment) {
      const auto response = core_->job.Register(request, moment);
      if (!response.ok()) return;
      for (const Rank& each : ranks_) core_->layouts.Add(absl::StrCat("layout", each.rank), 1);
      Send([&rank, agent = request.agent().incarnation(), epoch = response->coordinator_epoch()] {
        if (rank.agent != agent || epoch < rank.epoch) return;
        rank.epoch = epoch;
        rank.registered = true;
      });
    });
  });
}

void LoadWorld::Synchronize(Rank& rank) {
  After(absl::Milliseconds(50 + Pick(100)), [this, &rank] { Synchronize(rank); });
  if (!rank.registered) return Register(rank);
  v1::SynchronizeAgentRequest request;
  *request.mutable_agent() = Identity(rank);
  request.set_sequence(++rank.sequence);
  v1::TrainerState& trainer = *request.mutable_state()->mutable_trainer();
  trainer.set_attached(rank.trainer != 0);
  trainer.set_incarnation(rank.trainer);
  for (const auto& [key, call] : rank.calls) *request.mutable_state()->add_loads() = call;
  if (rank.group.number() != 0) *request.mutable_state()->add_groups() = rank.group;
  Send([this, &rank, request] {
    InCore([&](const Moment& moment) {
      if (request.agent().coordinator_epoch() != epoch_ || !core_->job.Synchronize(request, moment).ok()) {
        Send([&rank, agent = request.agent().incarnation()] {
          if (rank.agent == agent) rank.registered = false;
        });
        return;
      }
      Send([this, &rank, agent = request.agent().incarnation(), orders = core_->job.OrdersFor(rank.rank, moment)] {
        if (rank.agent == agent && orders.coordinator_epoch() == rank.epoch) Obey(rank, orders);
      });
    });
  });
}

void LoadWorld::Obey(Rank& rank, const v1::SynchronizeAgentResponse& orders) {
  FollowGroups(rank, orders);
  for (const v1::LoadOrder& order : orders.loads()) {
    const std::pair<uint64_t, uint64_t> key{order.trainer_incarnation(), order.number()};
    const auto found = rank.calls.find(key);
    if (found == rank.calls.end()) continue;
    v1::LoadState& state = found->second;
    const bool waits = rank.calling && key == std::pair(rank.trainer, rank.number);
    switch (order.phase()) {
      case v1::Phase::READING:
        if (const std::string wrong = ways_.Take(rank.rank, rank.epoch, order); !wrong.empty()) Violation(wrong);
        if (state.phase() != v1::Phase::PLANNING) break;
        state.set_phase(v1::Phase::READING);
        state.set_plan_digest(order.plan_digest());
        state.set_transfer_token_digest(Digest(order.transfer_token()));
        // One secret, one call of each rank.
        if (!readers_[order.transfer_token()].emplace(rank.rank, key).second &&
            readers_[order.transfer_token()][rank.rank] != key) {
          Violation(absl::StrCat("rank ", rank.rank, " is in one operation with two calls"));
        }
        rank.token = order.transfer_token();
        Read(rank, key, rank.token);
        break;
      case v1::Phase::DONE:
        if (state.phase() == v1::Phase::PLANNING || state.phase() == v1::Phase::READING) {
          Violation("an end that this rank was not ready for");
        }
        if (waits) {
          End(rank);
          ++rank.done;
          ++loads_;
        }
        rank.calls.erase(found);
        break;
      case v1::Phase::FAILED: {
        const absl::Status error = StatusFromProto(order.error());
        auto details = MetadataOf(error);
        if (!ReasonOf(error).has_value() || details["job"].empty()) Violation("an error that names nothing");
        if (HasReason(error, Reason::kRankLate) && (details["ranks"].empty() || details["phase"].empty())) {
          Violation(absl::StrCat("an error that names nobody: ", std::string(error.message())));
        }
        if (waits) {
          End(rank);
          ++rank.failed;
          ++failures_;
        }
        rank.calls.erase(found);
        break;
      }
      default:
        break;
    }
  }
}

void LoadWorld::FollowGroups(Rank& rank, const v1::SynchronizeAgentResponse& orders) {
  if (orders.groups().empty()) return rank.group.Clear();
  const v1::GroupOrder& order = orders.groups(0);
  if (rank.group.number() != order.number()) {
    rank.group.Clear();
    rank.group.set_number(order.number());
    rank.group.set_phase(v1::GroupState::BUILDING);
    // One id for each group; it is never used again.
    if (rank.rank == 0) rank.group.set_unique_id(absl::StrCat(absl::Dec(++next_id_, absl::kZeroPad16), kIdEnd));
  }
  if (order.unique_id().empty()) return;
  if (const std::string wrong = ways_.TakeId(order); !wrong.empty()) Violation(wrong);
  if (rank.group.phase() != v1::GroupState::BUILDING) return;
  After(Delay() * 3, [this, &rank, number = order.number()] {
    if (rank.group.number() != number || rank.group.phase() != v1::GroupState::BUILDING) return;
    rank.group.clear_unique_id();
    rank.group.set_phase(stormy() && Chance(0.1) ? v1::GroupState::BROKEN : v1::GroupState::READY);
  });
}

bool LoadWorld::Exchanged(Rank& rank, v1::LoadState& state, const std::string& token) {
  const v1::Exchange exchange = ways_.WayOf(token, rank.rank);
  if (exchange.way() == v1::Exchange::UNDECIDED) return false;
  if (exchange.way() != v1::Exchange::GROUP) return readers_[token].size() == ranks_.size();
  if (rank.group.number() != exchange.group() || rank.group.phase() != v1::GroupState::READY) {
    Fail(state, Reason::kTransportFailed, "the group has broken");
    return false;
  }
  if (ways_.AllGoBy(exchange.group(), token, static_cast<int>(ranks_.size()))) return true;
  const absl::Time since = exchanging_.emplace(std::pair(token, rank.rank), now_).first->second;
  if (now_ - since > kStall || (stormy() && Chance(0.1))) {
    rank.group.set_phase(v1::GroupState::BROKEN);
    Fail(state, Reason::kTransportFailed, "a step has made no progress");
  }
  return false;
}

void LoadWorld::Read(Rank& rank, std::pair<uint64_t, uint64_t> key, std::string token) {
  After(Delay() * 5, [this, &rank, key, token = std::move(token), agent = rank.agent] {
    const auto found = rank.calls.find(key);
    if (rank.agent != agent || found == rank.calls.end() || found->second.phase() != v1::Phase::READING) return;
    if (stormy() && Chance(0.1)) {
      Fail(found->second, Reason::kStorageError, "I/O error");
    } else if (readers_[token].size() < ranks_.size()) {
      // Every rank takes bytes from every other one, which gives them for this token only.
      CheckTokens();
      Read(rank, key, token);
    } else if ((reshards_ && !found->second.source_staged()) ||
               (exchanges_bytes_ && !Exchanged(rank, found->second, token))) {
      found->second.set_source_staged(reshards_);
      Read(rank, key, token);
    } else {
      if (ways_.WayOf(token, rank.rank).way() == v1::Exchange::GROUP) ++exchanges_;
      found->second.set_phase(v1::Phase::DONE);
    }
  });
}

void LoadWorld::CheckTokens() {
  const bool split =
      std::all_of(ranks_.begin(), ranks_.end(),
                  [&](const Rank& rank) {
                    const auto call = rank.calls.find({rank.trainer, rank.number});
                    return rank.calling && call != rank.calls.end() && call->second.phase() == v1::Phase::READING;
                  }) &&
      std::any_of(ranks_.begin(), ranks_.end(), [&](const Rank& rank) { return rank.token != ranks_.front().token; });
  if (!split) {
    split_since_ = absl::InfiniteFuture();
    return;
  }
  split_since_ = std::min(split_since_, now_);
  if (now_ - split_since_ > kSplitTime) Violation("all ranks read, and not by one token");
}

void LoadWorld::Disturb() {
  After(absl::Milliseconds(500 + Pick(4000)), [this] { Disturb(); });
  if (!stormy()) return;
  Rank& rank = ranks_[static_cast<size_t>(Pick(static_cast<int>(ranks_.size())))];
  switch (Pick(6)) {
    case 0:
    case 1:
      NewTrainer(rank);
      break;
    case 2:
      NewTrainer(rank);
      rank.trainer = 0;  // for a while
      break;
    case 3:
      NewAgent(rank);
      break;
    case 4:
      StartCoordinator();
      break;
    case 5:
      for (Rank& each : ranks_) NewTrainer(each);  // the job starts again
      break;
    default:
      break;
  }
}

}  // namespace cairn

// Trainers that go through their saves together, as training does, while their agents restart: each call ends, all
// ranks hear the same of an attempt, and none ever waits for one that waits for the others elsewhere. A failing seed is
// run alone with CAIRN_SIMULATION_SEED=N, its log printed with CAIRN_SIMULATION_LOG=1.
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status/reason.h"
#include "common/status/status_proto.h"
#include "coordinator/job/testing/simulated_storage.h"
#include "coordinator/testing/simulation.h"
#include "coordinator/testing/test_job.h"

namespace cairn {
namespace {

constexpr char kJob[] = "sim";
constexpr absl::Duration kPhaseTimeout = absl::Minutes(2);
// Far below any timeout of a phase: a call that ends by one has been left alone by the others.
constexpr absl::Duration kLongest = absl::Seconds(15);

struct Agent {
  uint64_t incarnation = 0;
  uint64_t epoch = 0;
  uint64_t sequence = 0;
  bool registered = false;
  bool attached = false;
  uint64_t calls = 0;
  std::map<int64_t, v1::SaveState> saves;
  std::optional<v1::SaveState> asked;
};

// Says how a trainer's call of save, or its wait for the outcome, ended.
struct Heard {
  bool known = false;  // else the client itself had to give up
  bool committed = false;
  uint32_t attempt = 0;
  std::string error;
};

struct Rank {
  uint64_t registered_last = 0;  // as it stands beside the sockets
  int number = 0;
  Agent agent;
  absl::Time started;
  // The state of the trainer's call in this round: whether it copies, whether it has returned, and its attempt as far
  // as the agent has told.
  bool staging = false;
  bool staged = false;
  uint32_t attempt = 0;
  uint64_t save = 0;  // the number of the call's save
  std::optional<Heard> outcome;
};

class World : private Simulation {
 public:
  World(uint64_t seed, bool coordinator_restarts)
      : Simulation(seed), coordinator_restarts_(coordinator_restarts), ranks_(2 + seed % 3) {
    for (size_t i = 0; i < ranks_.size(); ++i) {
      ranks_[i].number = static_cast<int>(i);
      ranks_[i].agent.incarnation = ++next_id_;
      ranks_[i].agent.attached = true;
    }
    StartCoordinator();
  }

  std::string Run(absl::Duration stormy) {
    stormy_until_ = now_ + stormy;
    last_event_ = now_;
    for (Rank& rank : ranks_) After(Delay(), [this, &rank] { Synchronize(rank); });
    After(absl::Milliseconds(100), [this] { Tick(); });
    After(absl::Milliseconds(500), [this] { Disturb(); });
    BeginRound(1);
    const absl::Time end = stormy_until_ + absl::Minutes(1);
    RunUntil(end);
    return violation();
  }

  int committed() const { return committed_; }
  int aborted() const { return aborted_; }
  int asked() const { return asked_; }

 private:
  absl::Duration Delay() { return absl::Milliseconds(1 + Pick(40)); }

  // The coordinator and its storage, which never fails here.

  void StartCoordinator() {
    DecisionOptions options;
    options.coordinator_epoch = ++epoch_;
    options.phase_timeout = kPhaseTimeout;
    options.lease_ttl = absl::Seconds(4);
    options.storage_timeout = absl::Seconds(12);
    core_ = std::make_unique<TestJob>(kJob, options, now_);
  }

  template <typename Function>
  void InCore(Function function) {
    function(Moment{now_, now_});
    // The bookkeeping of every event must be what follows from looking at everything.
    if (const std::string missed = core_->Missed(); !missed.empty()) Violation(missed);
    for (const LogEvent& line : core_->TakeLog()) Log(line.Text());
    for (CoreAction& action : core_->TakeActions()) {
      After(Delay(), [this, epoch = epoch_, action = std::move(action)] { Execute(epoch, action); });
    }
  }

  void Tick() {
    core_->Tick({now_, now_});
    InCore([](const Moment&) {});
    for (const Rank& rank : ranks_) {
      if (rank.outcome || now_ - std::max(rank.started, last_event_) <= Longest()) continue;
      Violation(absl::StrCat("rank ", rank.number, " waits for step ", step_, " for ",
                             absl::FormatDuration(now_ - rank.started)));
    }
    After(absl::Milliseconds(100), [this] { Tick(); });
  }
  // A coordinator that restarts finds out by timeouts what it does not know.
  absl::Duration Longest() const { return coordinator_restarts_ ? kLongest + 2 * kPhaseTimeout : kLongest; }

  void Execute(uint64_t epoch, const CoreAction& action) {
    std::function<void(Job&, const Moment&)> reply = [](Job&, const Moment&) {};
    if (std::get_if<RecoverJob>(&action) != nullptr) {
      reply = [all = storage_.ReadAll()](Job& job, const Moment& at) { job.OnRecovered(all, at); };
    } else if (const auto* read = std::get_if<ReadStep>(&action); read != nullptr) {
      reply = [read = *read, step = storage_.ReadStep(read->step)](Job& job, const Moment& at) {
        job.OnStepRead(read.step, read.ticket, step, at);
      };
    } else if (const auto* plan = std::get_if<PlanSave>(&action); plan != nullptr) {
      reply = [key = plan->key](Job& job, const Moment& at) { job.OnSavePlanned(key, PlannedSave{"plan", 1}, at); };
    } else if (const auto* reserve = std::get_if<ReserveAttempt>(&action); reserve != nullptr) {
      reply = [reserve = *reserve, reserved = storage_.Reserve(*reserve)](Job& job, const Moment& at) {
        job.OnReserved(reserve.step, reserve.ticket, reserved, at);
      };
    } else if (const auto* make = std::get_if<MakeManifest>(&action); make != nullptr) {
      reply = [step = make->step, ticket = make->ticket](Job& job, const Moment& at) {
        job.OnManifest(step, ticket, MadeManifest{std::make_shared<std::string>("m"), 1}, at);
      };
    } else if (const auto* put = std::get_if<PutOutcome>(&action); put != nullptr) {
      reply = [put = *put, standing = storage_.PutIfAbsent(*put).standing](Job& job, const Moment& at) {
        job.OnOutcome(put.step, put.ticket, PutAnswer{standing}, at);
      };
    } else if (const auto* remove = std::get_if<RemoveFiles>(&action); remove != nullptr) {
      storage_.Remove({remove->step, remove->attempt});
      reply = [remove = *remove](Job& job, const Moment& at) {
        job.OnRemoved(remove.step, remove.ticket, absl::OkStatus(), at);
      };
    }
    if (epoch != epoch_) return;
    InCore([&](const Moment& moment) { reply(core_->job, moment); });
  }

  // These are moves of agents.

  v1::AgentIdentity Identity(const Rank& rank) const {
    v1::AgentIdentity identity;
    identity.set_job(kJob);
    identity.set_rank(static_cast<uint32_t>(rank.number));
    identity.set_incarnation(rank.agent.incarnation);
    identity.set_coordinator_epoch(rank.agent.epoch);
    return identity;
  }
  static uint64_t TrainerOf(const Rank& rank) { return 1000 + static_cast<uint64_t>(rank.number); }
  static std::string Layout(int rank) { return absl::StrCat("layout", rank); }

  void Synchronize(Rank& rank) {
    After(absl::Milliseconds(50 + Pick(100)), [this, &rank] { Synchronize(rank); });
    Agent& agent = rank.agent;
    const uint64_t incarnation = agent.incarnation;
    if (!agent.registered) {
      v1::RegisterAgentRequest request;
      *request.mutable_agent() = Identity(rank);
      request.set_world_size(static_cast<uint32_t>(ranks_.size()));
      request.add_predecessors(rank.registered_last);
      InCore([&](const Moment& moment) {
        if (!core_->job.Register(request, moment).ok()) return;
        for (const Rank& other : ranks_) core_->layouts.Add(Layout(other.number), 1);
        agent.registered = true;
        rank.registered_last = agent.incarnation;
        agent.epoch = epoch_;
      });
      return;
    }
    v1::SynchronizeAgentRequest request;
    *request.mutable_agent() = Identity(rank);
    request.set_sequence(++agent.sequence);
    v1::AgentState& state = *request.mutable_state();
    state.mutable_trainer()->set_attached(agent.attached);
    if (agent.attached) state.mutable_trainer()->set_incarnation(TrainerOf(rank));
    state.mutable_trainer()->set_current_step(step_);
    state.mutable_trainer()->set_layout_digest(Layout(rank.number));
    for (const auto& [step, save] : agent.saves) *state.add_saves() = save;
    if (agent.asked) *state.add_saves() = *agent.asked;
    After(Delay(), [this, &rank, incarnation, request] {
      if (request.agent().coordinator_epoch() != epoch_) {
        if (rank.agent.incarnation == incarnation) rank.agent.registered = false;
        return;
      }
      InCore([&](const Moment& moment) {
        if (!core_->job.Synchronize(request, moment).ok()) return;
        After(Delay(), [this, &rank, incarnation, epoch = epoch_, orders = core_->job.OrdersFor(rank.number, moment)] {
          if (rank.agent.incarnation != incarnation || epoch != epoch_ || Chance(0.02)) return;
          for (const v1::SaveOrder& order : orders.saves()) Obey(rank, order);
        });
      });
    });
  }

  void Obey(Rank& rank, const v1::SaveOrder& order) {
    Agent& agent = rank.agent;
    const bool outcome = order.phase() == v1::Phase::COMMITTED || order.phase() == v1::Phase::ABORTED;
    if (agent.asked && agent.asked->call() == order.call()) {
      const uint32_t attempt = agent.asked->attempt();
      if (order.phase() == v1::Phase::UNKNOWN) {
        if (attempt != 0 || !coordinator_restarts_) Violation("the coordinator knows nothing of a save");
        agent.asked.reset();
        return Return(rank, {});
      }
      if (!outcome) return;
      if (attempt != 0 && order.attempt() != attempt) Violation("an answer about another attempt");
      agent.asked.reset();
      ++asked_;
      End(rank, order);
      return;
    }
    const auto found = agent.saves.find(order.step());
    if (found == agent.saves.end()) return;
    v1::SaveState& save = found->second;
    if (order.call() != 0 && order.call() != save.call()) return;
    if (outcome) {
      agent.saves.erase(found);
      End(rank, order);
      return;
    }
    if (order.phase() == v1::Phase::ABORTING) {
      if (save.phase() != v1::Phase::STOPPED) Move(rank, save.step(), save.phase(), v1::Phase::STOPPED);
      return;
    }
    save.set_attempt(order.attempt());
    if (order.step() == step_) rank.attempt = order.attempt();
    if (order.attempt_nonce() != 0) save.set_attempt_nonce(order.attempt_nonce());
    if (order.phase() == v1::Phase::WAITING) return;
    save.set_plan_digest(order.plan_digest());
    if (save.phase() == v1::Phase::PLANNING) Move(rank, save.step(), v1::Phase::PLANNING, v1::Phase::STAGING);
    if (save.phase() == v1::Phase::STAGING) Move(rank, save.step(), v1::Phase::STAGING, v1::Phase::STAGED);
    if (save.phase() == v1::Phase::STAGED && order.phase() == v1::Phase::WRITING) {
      Move(rank, save.step(), v1::Phase::STAGED, v1::Phase::WRITTEN);
    }
  }

  void Move(Rank& rank, int64_t step, v1::Phase::Value from, v1::Phase::Value to) {
    const uint64_t call = rank.agent.saves[step].call();
    After(absl::Milliseconds(10 + Pick(300)), [=, this, &rank, incarnation = rank.agent.incarnation] {
      const auto found = rank.agent.saves.find(step);
      if (rank.agent.incarnation != incarnation || found == rank.agent.saves.end()) return;
      if (found->second.phase() != from || found->second.call() != call) return;
      found->second.set_phase(to);
      if (step != step_) return;
      rank.staging = to == v1::Phase::STAGING;
      rank.staged = rank.staged || to == v1::Phase::STAGED;
    });
  }

  // These are moves of trainers.

  // All call save of the step, some a little later than others.
  void BeginRound(int64_t step) {
    step_ = step;
    ++round_;
    Log(absl::StrCat("round ", round_, " step=", step));
    for (Rank& rank : ranks_) {
      rank.outcome.reset();
      rank.started = now_;
      rank.staging = rank.staged = false;
      After(absl::Milliseconds(Pick(400)), [this, &rank, round = round_] {
        if (round == round_) Call(rank);
      });
    }
  }

  void Call(Rank& rank) {
    Agent& agent = rank.agent;
    if (!agent.attached || rank.outcome) return;  // it calls when it has attached again
    if (agent.saves.contains(step_)) {
      // The attempt before has no outcome yet.
      After(absl::Milliseconds(50), [this, &rank, round = round_, incarnation = agent.incarnation] {
        if (round == round_ && incarnation == rank.agent.incarnation) Call(rank);
      });
      return;
    }
    rank.staging = rank.staged = false;
    rank.attempt = 0;
    v1::SaveState& save = agent.saves[step_];
    save.set_step(step_);
    save.set_call(++agent.calls);
    save.set_save(rank.save = ++next_id_);
    save.set_trainer_incarnation(TrainerOf(rank));
    save.set_phase(v1::Phase::PLANNING);
    save.set_layout_digest(Layout(rank.number));
  }

  void End(Rank& rank, const v1::SaveOrder& order) {
    Heard outcome{true, order.phase() == v1::Phase::COMMITTED, order.attempt(), ""};
    if (!outcome.committed) {
      const absl::Status error = StatusFromProto(order.error());
      outcome.error = std::string(error.message());
      if (!coordinator_restarts_ && !HasReason(error, Reason::kRankLost)) {
        Violation(absl::StrCat("rank ", rank.number, " was told something else than a loss: ", outcome.error));
      }
    }
    if (order.attempt() > 0) {
      const AttemptKey key{order.step(), order.attempt()};
      if (!told_.emplace(key, outcome.committed).second && told_[key] != outcome.committed) {
        Violation(absl::StrCat("ranks were told both of step ", order.step(), " attempt ", order.attempt()));
      }
    }
    if (order.step() == step_) Return(rank, outcome);
  }

  void Return(Rank& rank, Heard outcome) {
    if (rank.outcome) return;
    Log(absl::StrCat("rank ", rank.number, " heard of step ", step_, " attempt ", outcome.attempt, ": ",
                     !outcome.known      ? "nothing"
                     : outcome.committed ? "committed"
                                         : outcome.error));
    rank.outcome = std::move(outcome);
    for (const Rank& each : ranks_) {
      if (!each.outcome) return;
    }
    // They compare what they have heard, and go on together.
    const Heard* first = nullptr;
    for (const Rank& each : ranks_) {
      if (!each.outcome->known) continue;
      if (first == nullptr) first = &*each.outcome;
      const bool same = each.outcome->committed == first->committed && each.outcome->attempt == first->attempt &&
                        each.outcome->error == first->error;
      if (!same && !coordinator_restarts_) {
        Violation(absl::StrCat("one round ended in two ways: attempt ", first->attempt, " ", first->error,
                               " / attempt ", each.outcome->attempt, " ", each.outcome->error));
      }
    }
    const bool committed = first != nullptr && first->committed;
    (committed ? committed_ : aborted_) += 1;
    // Some jobs try again, some go on.
    BeginRound(committed || Chance(0.3) ? step_ + 1 : step_);
  }

  // These stop and restart what runs.

  void Disturb() {
    After(absl::Milliseconds(300 + Pick(6000)), [this] { Disturb(); });
    if (now_ >= stormy_until_) return;
    if (coordinator_restarts_ && Chance(0.3)) {
      last_event_ = now_;
      Log("the coordinator restarts");
      StartCoordinator();
      return;
    }
    Rank& rank = ranks_[static_cast<size_t>(Pick(static_cast<int>(ranks_.size())))];
    Log(absl::StrCat("rank ", rank.number, "'s agent restarts"));
    rank.agent = Agent();
    rank.agent.incarnation = ++next_id_;
    last_event_ = now_;
    // Soon enough that a call which it delays still comes within kNextAttemptGrace of the others'.
    After(absl::Milliseconds(10 + Pick(400)), [this, &rank, incarnation = rank.agent.incarnation] {
      if (rank.agent.incarnation != incarnation) return;
      rank.agent.attached = true;
      last_event_ = now_;
      Resume(rank);
    });
  }

  // The trainer has found another agent.
  void Resume(Rank& rank) {
    if (rank.outcome) return;
    if (rank.staged) {
      v1::SaveState& asked = rank.agent.asked.emplace();
      asked.set_step(step_);
      asked.set_attempt(rank.attempt);
      if (rank.attempt == 0) asked.set_save(rank.save);
      asked.set_phase(v1::Phase::ASKED);
      asked.set_call(++rank.agent.calls);
    } else if (rank.staging && Chance(0.5)) {
      // A client that fails by itself: its trainer's next call is one with which all try again.
      Return(rank, {});
    } else {
      Call(rank);
    }
  }

  const bool coordinator_restarts_;
  absl::Time stormy_until_;
  absl::Time last_event_;
  uint64_t next_id_ = 100;
  uint64_t epoch_ = 0;
  std::unique_ptr<TestJob> core_;
  std::map<AttemptKey, bool> told_;  // whether it was committed
  std::vector<Rank> ranks_;
  SimulatedStorage storage_{static_cast<int>(ranks_.size())};
  int64_t step_ = 0;
  uint64_t round_ = 0;
  int committed_ = 0;
  int aborted_ = 0;
  int asked_ = 0;
};

class RestartSimulationTest : public testing::TestWithParam<bool> {};

TEST_P(RestartSimulationTest, Invariants_EverySeed_RanksHearTheSameAndNeverTakeTurns) {
  const Seeds seeds = SeedsToRun(25);
  int committed = 0, aborted = 0, asked = 0;
  for (uint64_t seed = seeds.first; seed < seeds.first + seeds.count; ++seed) {
    World world(seed, GetParam());
    const std::string violation = world.Run(absl::Minutes(3));
    ASSERT_EQ(violation, "") << "replay: CAIRN_SIMULATION_SEED=" << seed << " CAIRN_SIMULATION_LOG=1";
    committed += world.committed();
    aborted += world.aborted();
    asked += world.asked();
  }
  if (seeds.count > 10) {
    EXPECT_GT(committed, 10 * static_cast<int>(seeds.count));
    EXPECT_GT(aborted, static_cast<int>(seeds.count));
    EXPECT_GT(asked, static_cast<int>(seeds.count));
  }
}

INSTANTIATE_TEST_SUITE_P(All, RestartSimulationTest, testing::Bool(),
                         [](const auto& one) { return one.param ? "WithTheCoordinator" : "AgentsAlone"; });

}  // namespace
}  // namespace cairn

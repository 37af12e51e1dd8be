// The core under a seeded scheduler: agents, trainers, a network that delays, drops, duplicates and reorders, storage
// that fails, processes that crash, freeze and come back, and coordinators that are replaced while their last actions
// are still on the way. A failing seed prints how to run it alone: CAIRN_SIMULATION_SEED=N.
#include "coordinator/testing/simulation.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <memory>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/status/reason.h"
#include "common/status/status_proto.h"
#include "coordinator/job/decisions.h"

namespace cairn {
namespace {

constexpr char kJob[] = "sim";
constexpr absl::Duration kPhaseTimeout = absl::Seconds(20);
constexpr absl::Duration kLease = absl::Seconds(4);
constexpr absl::Duration kStorageTimeout = absl::Seconds(12);

// What is wrong on purpose, to show that the invariants notice.
enum class Planted { kNothing, kVerdictOverwritten, kWrittenTooEarly, kDoubtConcealed };

struct Agent {
  int rank = 0;
  uint64_t incarnation = 0;
  uint64_t trainer = 0;
  uint64_t epoch = 0;
  uint64_t revision = 0;
  uint64_t sequence = 0;
  bool registered = false;
  absl::Time frozen_until = absl::InfinitePast();
  int64_t step = 0;
  std::map<int64_t, v1::SaveState> saves;
  std::map<int64_t, absl::Time> begun;
  std::map<int64_t, uint64_t> calls;
  std::map<int64_t, absl::Time> stalled;  // when it was last told so
  v1::ArmState arm;
  int64_t armed_step = -1;
  bool agreed = false;
  int arm_waits = 0;
};

class World : private Simulation {
 public:
  World(uint64_t seed, int ranks, Planted planted)
      : Simulation(seed), planted_(planted), agents_(static_cast<size_t>(ranks)) {
    for (int rank = 0; rank < ranks; ++rank) Reset(agents_[static_cast<size_t>(rank)], rank);
    StartCoordinator();
  }

  // Runs `calm` seconds after `stormy` ones and returns the first violation, or "".
  std::string Run(absl::Duration stormy, absl::Duration calm) {
    stormy_until_ = now_ + stormy;
    const absl::Time end = stormy_until_ + calm;
    for (Agent& agent : agents_) After(Delay(), [this, &agent] { Synchronize(agent); });
    for (Agent& agent : agents_) After(Delay(), [this, &agent] { Train(agent); });
    After(absl::Milliseconds(100), [this] { Tick(); });
    After(absl::Seconds(1), [this] { Disturb(); });
    After(absl::Seconds(1), [this] { Ask(); });
    After(absl::Seconds(1), [this] { Delete(); });
    RunUntil(end);
    if (violation().empty()) CheckQuiet();
    return violation();
  }

  int commits() const { return static_cast<int>(committed_steps_.size()); }
  int aborts() const { return aborts_; }
  int agreements() const { return agreements_; }
  int doubts() const { return doubts_; }
  int stalls() const { return stalls_; }
  int replaced() const { return replaced_; }
  int deletions() const { return deletions_; }

 private:
  bool stormy() const { return now_ < stormy_until_; }
  absl::Duration Delay() { return absl::Milliseconds(stormy() && Chance(0.05) ? 200 + Pick(3000) : 1 + Pick(40)); }

  void Reset(Agent& agent, int rank) {
    const int64_t step = agent.step;
    agent = Agent();
    agent.rank = rank;
    agent.step = step;
    agent.incarnation = ++next_id_;
    agent.trainer = ++next_id_;
  }

  // Coordinators. The generation tells the results of a dead one from those of the living.

  void StartCoordinator() {
    DecisionOptions options;
    options.coordinator_epoch = ++epoch_;
    options.phase_timeout = kPhaseTimeout;
    options.lease_ttl = kLease;
    options.storage_timeout = kStorageTimeout;
    decisions_ = std::make_unique<Decisions>(options);
    ++generation_;
  }

  template <typename Function>
  void InCore(Function function) {
    const Moment moment = decisions_->At(now_, now_);
    function(moment);
    CheckBookkeeping();
    std::vector<CoreAction> actions = decisions_->TakeActions();
    for (const std::string& line : decisions_->TakeLog()) {
      Log(absl::StrCat("epoch=", epoch_, " ", line));
    }
    for (CoreAction& action : actions) {
      const uint64_t generation = generation_;
      const absl::Duration delay = StorageDelay();
      if (delay == absl::InfiniteDuration()) ++never_;
      After(delay, [this, generation, action = std::move(action)] { Execute(generation, action); });
    }
  }

  // What is kept with every event must be what follows from looking at everything.
  void CheckBookkeeping() {
    Job* job = decisions_->Find(kJob);
    if (job == nullptr) return;
    const std::string missed = job->Inconsistency();
    if (!missed.empty()) Violation(missed);
  }

  // A call that hangs takes effect, and is answered, long after everyone has stopped waiting for it; some never.
  absl::Duration StorageDelay() {
    if (!stormy() || !Chance(0.01)) return Delay();
    if (Chance(0.3)) return absl::InfiniteDuration();
    return absl::Seconds(5 + Pick(40));
  }

  void Tick() {
    if (now_ >= coordinator_frozen_until_) {
      decisions_->Tick(now_, now_);
      InCore([](const Moment&) {});
    }
    After(absl::Milliseconds(100), [this] { Tick(); });
  }

  // Storage. What a dead coordinator had on the way still happens, but nobody hears of it.

  VerdictSummary Put(int64_t step, uint32_t attempt, const PutVerdict& put) {
    const std::pair<int64_t, uint32_t> key{step, attempt};
    const bool overwrite = planted_ == Planted::kVerdictOverwritten;
    if (!verdicts_.contains(key) || overwrite) {
      VerdictSummary verdict;
      verdict.step = step;
      verdict.attempt = attempt;
      verdict.request_id = put.request_id;
      verdict.committed = put.manifest != nullptr;
      verdict.error = put.error;
      verdict.world_size = static_cast<uint32_t>(agents_.size());
      if (verdict.committed) {
        for (const Agent& agent : agents_) {
          if (!files_.contains({step, attempt, agent.rank})) {
            Violation(
                absl::StrCat("step ", step, " attempt ", attempt, " committed without the files of rank ", agent.rank));
          }
        }
        const bool again = !committed_steps_.insert(step).second;
        if (again && !overwrites_.contains(key)) Violation(absl::StrCat("step ", step, " committed twice"));
        if (again) ++replaced_;
        if (!verdicts_.empty() && told_aborted_.contains(key)) {
          Violation(
              absl::StrCat("step ", step, " attempt ", attempt, " committed after a rank was told that it was not"));
        }
      }
      verdicts_[key] = verdict;
    }
    return verdicts_[key];
  }

  void Execute(uint64_t generation, const CoreAction& action) {
    const bool fails = stormy() && (now_ < outage_until_ || Chance(0.03));
    const absl::Status error = MakeError(Reason::kStorageError, "the storage failed");
    const auto reply = [&](auto function) {
      if (generation != generation_) return;
      InCore([&](const Moment& moment) {
        if (Job* job = decisions_->Find(kJob); job != nullptr) function(*job, moment);
      });
    };
    if (std::get_if<RecoverJob>(&action.what) != nullptr) {
      Recovered recovered;
      for (const auto& [key, verdict] : verdicts_) recovered.verdict.push_back(verdict);
      for (const auto& [step, attempts] : directories_) {
        for (uint32_t attempt : attempts) {
          const auto verdict = verdicts_.find({step, attempt});
          if (verdict == verdicts_.end() || !verdict->second.stands()) {
            const bool deleted = verdict != verdicts_.end() && verdict->second.deleted;
            recovered.leftover.push_back({step, attempt, verdict != verdicts_.end(), deleted});
          }
        }
      }
      reply([&](Job& job, const Moment& moment) {
        job.OnRecovered(fails ? absl::StatusOr<Recovered>(error) : recovered, moment);
      });
    } else if (const auto* read = std::get_if<ReadStep>(&action.what); read != nullptr) {
      Recovered recovered;
      for (const auto& [key, verdict] : verdicts_) {
        if (key.first == read->step) recovered.verdict.push_back(verdict);
      }
      reply([&](Job& job, const Moment& moment) {
        job.OnStepRead(read->step, read->ticket, fails ? absl::StatusOr<Recovered>(error) : recovered, moment);
      });
    } else if (const auto* plan = std::get_if<PlanSave>(&action.what); plan != nullptr) {
      std::string digest = "plan:";
      for (const std::string& layout : plan->layout) absl::StrAppend(&digest, layout);
      reply([&](Job& job, const Moment& moment) { job.OnSavePlanned(plan->key, PlannedSave{digest, 1}, moment); });
    } else if (const auto* reserve = std::get_if<ReserveAttempt>(&action.what); reserve != nullptr) {
      absl::StatusOr<uint32_t> attempt = reserve->above + 1;
      for (const auto& [key, verdict] : verdicts_) {
        if (key.first != reserve->step) continue;
        if (verdict.stands() && !reserve->overwrite) attempt = MakeError(Reason::kStepCommitted, "committed");
        if (attempt.ok()) attempt = std::max(*attempt, key.second + 1);
      }
      for (uint32_t number : directories_[reserve->step]) {
        if (!attempt.ok()) break;
        attempt = std::max(*attempt, number + 1);
        if (!verdicts_.contains({reserve->step, number})) {
          const auto put = Put(
              reserve->step, number,
              PutVerdict{reserve->step, number, 0, nullptr, nullptr, MakeError(Reason::kCoordinatorRestarted, "left")});
          if (put.committed) attempt = MakeError(Reason::kStepCommitted, "committed");
        }
      }
      if (attempt.ok()) {
        // What has a tombstone goes, as it does in the catalog.
        std::erase_if(directories_[reserve->step], [&](uint32_t number) {
          if (verdicts_[{reserve->step, number}].committed) return false;
          for (const Agent& agent : agents_) files_.erase({reserve->step, number, agent.rank});
          return true;
        });
      }
      if (fails) attempt = error;
      if (attempt.ok()) directories_[reserve->step].insert(*attempt);
      if (attempt.ok() && reserve->overwrite) overwrites_.insert({reserve->step, *attempt});
      // The coordinator that asked is dead; the next one hears of the directory when it recovers.
      if (attempt.ok() && generation != generation_) orphans_.insert({reserve->step, *attempt});
      reply([&](Job& job, const Moment& moment) {
        job.OnReserved(reserve->step, reserve->ticket,
                       attempt.ok() ? absl::StatusOr<Reserved>(Reserved{*attempt, *attempt}) : attempt.status(),
                       moment);
      });
    } else if (const auto* make = std::get_if<MakeManifest>(&action.what); make != nullptr) {
      reply([&](Job& job, const Moment& moment) {
        job.OnManifest(make->step, make->ticket, MadeManifest{std::make_shared<std::string>("m"), 1}, moment);
      });
    } else if (const auto* put = std::get_if<PutVerdict>(&action.what); put != nullptr) {
      // A failure before it took effect, after it, or before an effect that comes later: of the last two the shell
      // knows only that it does not know.
      const int failure = fails ? 1 + Pick(3) : 0;
      PutOutcome outcome{error, failure > 1};
      if (outcome.in_doubt && put->manifest != nullptr) ++doubts_;
      if (planted_ == Planted::kDoubtConcealed) outcome.in_doubt = false;
      if (failure == 0 || failure == 2) {
        const VerdictSummary standing = Put(put->step, put->attempt, *put);
        if (failure == 0) outcome.standing = standing;
      } else if (failure == 3) {
        After(absl::Milliseconds(1 + Pick(4000)), [this, late = *put] { Put(late.step, late.attempt, late); });
      }
      reply([&](Job& job, const Moment& moment) { job.OnVerdict(put->step, put->ticket, outcome, moment); });
    } else if (const auto* remove = std::get_if<RemoveFiles>(&action.what); remove != nullptr) {
      const std::pair<int64_t, uint32_t> key{remove->step, remove->attempt};
      if (!verdicts_.contains(key) || verdicts_[key].stands()) {
        Violation(
            absl::StrCat("files of step ", remove->step, " attempt ", remove->attempt, " removed without a tombstone"));
      }
      if (verdicts_[key].deleted != remove->deleted) Violation("files are removed that nobody has asked for");
      for (const Agent& agent : agents_) files_.erase({remove->step, remove->attempt, agent.rank});
      directories_[remove->step].erase(remove->attempt);
      reply([&](Job& job, const Moment& moment) {
        job.OnRemoved(remove->step, remove->ticket, absl::OkStatus(), moment);
      });
      CheckSound();
    } else if (const auto* change = std::get_if<ChangeSteps>(&action.what); change != nullptr) {
      absl::StatusOr<ChangedSteps> changed = error;
      // What follows an overwrite may have taken effect when it fails.
      if (!fails || std::holds_alternative<DeleteReplaced>(change->change)) changed = Change(*change);
      // The coordinator that asked is dead, and the next one has read storage before: the one after it hears of it.
      if (changed.ok() && generation != generation_) {
        for (const VerdictSummary& deleted : changed->deleted) orphans_.insert({deleted.step, deleted.attempt});
      }
      if (fails) changed = error;
      reply([&](Job& job, const Moment& moment) { job.OnStepsChanged(change->ticket, changed, moment); });
      CheckSound();
    }
  }

  // The attempts that readers find: the highest one of each step that stands.
  std::map<int64_t, uint32_t> Standing() const {
    std::map<int64_t, uint32_t> standing;
    for (const auto& [key, verdict] : verdicts_) {
      if (verdict.stands()) standing[key.first] = key.second;
    }
    return standing;
  }
  bool HasFiles(int64_t step, uint32_t attempt) const {
    return std::all_of(agents_.begin(), agents_.end(),
                       [&](const Agent& agent) { return files_.contains({step, attempt, agent.rank}); });
  }
  // Whoever reads now finds only whole checkpoints, and one at least if there ever was one.
  void CheckSound() {
    const auto standing = Standing();
    if (standing.empty() && !committed_steps_.empty()) Violation("no checkpoint is left");
    for (const auto& [step, attempt] : standing) {
      if (!HasFiles(step, attempt)) Violation(absl::StrCat("step ", step, " attempt ", attempt, " lost its files"));
    }
  }

  // As the DeletionStore does.
  ChangedSteps Change(const ChangeSteps& change) {
    ChangedSteps changed;
    const auto standing = Standing();
    const auto* replaced = std::get_if<DeleteReplaced>(&change.change);
    const auto* deletion = std::get_if<DeleteStep>(&change.change);
    for (auto& [key, verdict] : verdicts_) {
      const bool left = replaced != nullptr && key.first == replaced->step && verdict.deleted &&
                        directories_[key.first].contains(key.second);
      if (left) changed.deleted.push_back(verdict);
      if (!verdict.stands()) continue;
      const bool doomed = replaced != nullptr ? key.first == replaced->step && key.second < standing.at(key.first)
                                              : deletion != nullptr && key.first == deletion->step;
      if (!doomed || (deletion != nullptr && standing.size() == 1)) continue;
      verdict.deleted = true;
      verdict.error = MakeError(Reason::kNotCommitted, "deleted");
      changed.deleted.push_back(verdict);
      ++deletions_;
    }
    return changed;
  }

  // Agents and trainers.

  v1::AgentIdentity Identity(const Agent& agent) const {
    v1::AgentIdentity identity;
    identity.set_job(kJob);
    identity.set_rank(static_cast<uint32_t>(agent.rank));
    identity.set_incarnation(agent.incarnation);
    identity.set_coordinator_epoch(agent.epoch);
    return identity;
  }

  void Synchronize(Agent& agent) {
    After(absl::Milliseconds(100 + Pick(100)), [this, &agent] { Synchronize(agent); });
    if (now_ < agent.frozen_until) return;
    const uint64_t incarnation = agent.incarnation;
    if (!agent.registered) {
      v1::RegisterAgentRequest request;
      *request.mutable_agent() = Identity(agent);
      request.set_world_size(static_cast<uint32_t>(agents_.size()));
      Send([this, &agent, incarnation, request] {
        if (request.agent().coordinator_epoch() > epoch_) return;
        InCore([&](const Moment& moment) {
          const auto job = decisions_->JobFor(kJob, moment);
          const auto response = (*job)->Register(request, moment);
          if (!response.ok()) return;
          for (const Agent& other : agents_) decisions_->AddLayout(Layout(other), 1, moment);
          Send([&agent, incarnation, answer = *response] {
            if (agent.incarnation != incarnation || answer.coordinator_epoch() < agent.epoch) return;
            agent.epoch = answer.coordinator_epoch();
            agent.registered = true;
            agent.revision = 0;
          });
        });
      });
      return;
    }
    v1::SynchronizeAgentRequest request;
    *request.mutable_agent() = Identity(agent);
    request.set_sequence(++agent.sequence);
    v1::AgentState& state = *request.mutable_state();
    state.mutable_trainer()->set_attached(true);
    state.mutable_trainer()->set_incarnation(agent.trainer);
    state.mutable_trainer()->set_current_step(agent.step);
    state.mutable_trainer()->set_layout_digest(Layout(agent));
    *state.mutable_arm() = agent.arm;
    for (const auto& [step, save] : agent.saves) *state.add_saves() = save;
    const auto deliver = [this, &agent, incarnation, request] {
      InCore([&](const Moment& moment) {
        Job* job = decisions_->Find(kJob);
        absl::Status status = request.agent().coordinator_epoch() != epoch_ ? MakeError(Reason::kStaleEpoch, "epoch")
                              : job == nullptr                              ? MakeError(Reason::kNotRegistered, "job")
                                                                            : job->Synchronize(request, moment);
        v1::SynchronizeAgentResponse orders;
        if (status.ok()) orders = job->OrdersFor(agent.rank, moment);
        Send([this, &agent, incarnation, status, orders] {
          if (agent.incarnation != incarnation || now_ < agent.frozen_until) return;
          if (HasReason(status, Reason::kStaleIncarnation)) {
            Reset(agent, agent.rank);
          } else if (!status.ok()) {
            agent.registered = false;
          } else if (orders.coordinator_epoch() == agent.epoch && orders.revision() >= agent.revision) {
            agent.revision = orders.revision();
            Obey(agent, orders);
          }
        });
      });
    };
    Send(deliver);
    if (stormy() && Chance(0.1)) Send(deliver);
  }

  static std::string Layout(const Agent& agent) { return absl::StrCat("layout", agent.rank); }

  // One way over the network, while the coordinator is not frozen.
  void Send(std::function<void()> deliver) {
    if (stormy() && Chance(0.05)) return;
    After(Delay(), [this, deliver] {
      if (now_ < coordinator_frozen_until_) {
        After(coordinator_frozen_until_ - now_, deliver);
      } else {
        deliver();
      }
    });
  }

  void Obey(Agent& agent, const v1::SynchronizeAgentResponse& orders) {
    if (orders.has_arm()) {
      const v1::ArmOrder& order = orders.arm();
      const bool newer = order.number() > agent.arm.number();
      if (order.action() == v1::ArmOrder::ARM && newer) {
        agent.arm.set_number(order.number());
        agent.arm.set_step(order.step());
        agent.arm.set_status(agent.step >= order.step() ? v1::ArmState::REFUSED : v1::ArmState::ARMED);
        agent.armed_step = agent.arm.status() == v1::ArmState::ARMED ? order.step() : -1;
        agent.agreed = false;
      } else if (order.number() == agent.arm.number() && order.action() == v1::ArmOrder::AGREE &&
                 agent.arm.status() == v1::ArmState::ARMED) {
        if (agent.step > order.step()) {
          agent.arm.set_status(v1::ArmState::REFUSED);
        } else {
          agent.arm.set_status(v1::ArmState::AGREED);
          agent.agreed = true;
          ++agreements_;
        }
      } else if (order.action() == v1::ArmOrder::DISARM && order.number() >= agent.arm.number()) {
        agent.arm.set_number(order.number());
        agent.arm.set_status(v1::ArmState::DISARMED);
        agent.armed_step = -1;
        agent.agreed = false;
      }
    }
    for (const v1::SaveOrder& order : orders.saves()) {
      const auto found = agent.saves.find(order.step());
      if (found == agent.saves.end()) continue;
      v1::SaveState& save = found->second;
      if (order.call() != 0 && order.call() < save.call()) continue;
      if (order.has_stalled()) {
        ++stalls_;
        agent.stalled[order.step()] = now_;
        if (!HasReason(StatusFromProto(order.stalled()), Reason::kStorageStalled))
          Violation("a stall without its reason");
      }
      switch (order.action()) {
        case v1::SaveOrder::STAGE:
        case v1::SaveOrder::WRITE:
          save.set_plan_digest(order.plan_digest());
          save.set_request_id(order.request_id());
          if (save.phase() == v1::SaveState::BEGUN)
            Move(agent, order.step(), v1::SaveState::BEGUN, v1::SaveState::STAGED);
          if (order.action() == v1::SaveOrder::WRITE && save.phase() == v1::SaveState::STAGED) {
            save.set_attempt(order.attempt());
            save.set_attempt_nonce(order.attempt_nonce());
            Move(agent, order.step(), v1::SaveState::STAGED, v1::SaveState::WRITTEN);
          }
          break;
        case v1::SaveOrder::ABORT:
          if (save.phase() != v1::SaveState::STOPPED) Move(agent, order.step(), save.phase(), v1::SaveState::STOPPED);
          break;
        case v1::SaveOrder::COMMITTED:
          Told(agent, order, true);
          break;
        case v1::SaveOrder::ABORTED:
          Told(agent, order, false);
          break;
        default:
          break;
      }
    }
  }

  void Told(Agent& agent, const v1::SaveOrder& order, bool committed) {
    const std::pair<int64_t, uint32_t> key{order.step(), order.attempt()};
    if (committed) {
      if (!verdicts_.contains(key) || !verdicts_[key].committed) {
        Violation(absl::StrCat("rank ", agent.rank, " was told that step ", order.step(), " was committed"));
      }
    } else {
      ++aborts_;
      const absl::Status error = StatusFromProto(order.error());
      const auto reason = ReasonOf(error);
      if (!reason.has_value()) Violation("an abort without a reason");
      if ((reason == Reason::kRankLate || reason == Reason::kRankLost) && MetadataOf(error)["ranks"].empty()) {
        Violation(absl::StrCat("an abort that names nobody: ", std::string(error.message())));
      }
      if (order.attempt() > 0 && verdicts_.contains(key) && verdicts_[key].committed) {
        Violation(absl::StrCat("rank ", agent.rank, " was told that step ", order.step(), " attempt ", order.attempt(),
                               " was aborted, and it is committed"));
      }
      if (order.attempt() > 0) told_aborted_.insert(key);
    }
    agent.saves.erase(order.step());
    agent.begun.erase(order.step());
  }

  void Move(Agent& agent, int64_t step, v1::SaveState::Phase from, v1::SaveState::Phase to) {
    const uint64_t incarnation = agent.incarnation;
    After(Delay(), [this, &agent, incarnation, step, from, to] {
      const auto found = agent.saves.find(step);
      if (agent.incarnation != incarnation || found == agent.saves.end() || found->second.phase() != from) return;
      if (now_ < agent.frozen_until) {
        Move(agent, step, from, to);
        return;
      }
      v1::SaveState& save = found->second;
      if (to == v1::SaveState::WRITTEN) {
        if (stormy() && Chance(0.05)) {
          save.set_phase(v1::SaveState::FAILED);
          *save.mutable_error() = StatusToProto(MakeError(Reason::kNoSpace, "disk full"));
          return;
        }
        const bool early = planted_ == Planted::kWrittenTooEarly && Chance(0.2);
        if (!early) files_.insert({step, save.attempt(), agent.rank});
      }
      save.set_phase(to);
    });
  }

  // A trainer makes a step, and saves at every 40th and where the job agreed to.
  void Train(Agent& agent) {
    After(absl::Milliseconds(20 + Pick(20)), [this, &agent] { Train(agent); });
    if (now_ < agent.frozen_until || !agent.saves.empty() || !agent.registered) return;
    // Ranks of one job run in step: nobody is more than one ahead.
    for (const Agent& other : agents_) {
      if (other.step < agent.step) return;
    }
    if (agent.armed_step == agent.step + 1 && !agent.agreed) {
      if (++agent.arm_waits < 20) return;  // waits a bounded time for the second round
      agent.arm.set_status(v1::ArmState::REFUSED);
      agent.armed_step = -1;
    }
    agent.arm_waits = 0;
    ++agent.step;
    const bool agreed = agent.agreed && agent.armed_step == agent.step;
    if ((stormy() && agent.step % 40 == 0) || agreed) Save(agent, agent.step, /*overwrite=*/false);
    // The step before is saved again, whether it was committed or not.
    if (stormy() && !agreed && agent.step % 80 == 20) Save(agent, agent.step - 20, /*overwrite=*/true);
  }

  void Save(Agent& agent, int64_t step, bool overwrite) {
    v1::SaveState& save = agent.saves[step];
    save.set_step(step);
    save.set_phase(v1::SaveState::BEGUN);
    save.set_call(++agent.calls[step]);
    save.set_trainer_incarnation(agent.trainer);
    save.set_layout_digest(Layout(agent));
    save.set_overwrite(overwrite);
    agent.begun[step] = now_;
  }

  // People ask for saves.
  void Ask() {
    After(absl::Seconds(3 + Pick(5)), [this] { Ask(); });
    if (!stormy()) return;
    v1::CreateCheckpointRequest request;
    request.set_job(kJob);
    request.set_request_id(absl::StrCat("r", ++next_id_));
    request.mutable_timeout()->set_seconds(15);
    Send([this, request] {
      InCore([&](const Moment& moment) {
        const auto job = decisions_->JobFor(kJob, moment);
        const auto checkpoint = (*job)->Create(request, false, moment);
        if (checkpoint.has_value() && checkpoint->ok()) asked_[request.request_id()] = {epoch_, now_};
        if (Chance(0.1)) (*job)->Cancel({std::nullopt, request.request_id()}, moment);
      });
    });
  }

  // People delete checkpoints.
  void Delete() {
    After(absl::Seconds(5 + Pick(10)), [this] { Delete(); });
    const auto standing = Standing();
    if (!stormy() || standing.empty()) return;
    const int64_t step = std::next(standing.begin(), Pick(static_cast<int>(standing.size())))->first;
    Send([this, step] {
      InCore([&](const Moment& moment) {
        uint64_t number = 0;
        (*decisions_->JobFor(kJob, moment))->Change({DeleteStep{step, "a test"}}, number, /*patient=*/false, moment);
      });
    });
  }

  void Disturb() {
    After(absl::Seconds(2 + Pick(6)), [this] { Disturb(); });
    if (!stormy()) return;
    Agent& agent = agents_[static_cast<size_t>(Pick(static_cast<int>(agents_.size())))];
    // Doubt that is concealed does harm when storage fails for longer than anyone waits for a tombstone.
    if (planted_ == Planted::kDoubtConcealed) {
      if (now_ >= outage_until_) outage_until_ = now_ + 2 * kPhaseTimeout;
      return;
    }
    switch (Pick(7)) {
      case 0:
        Reset(agent, agent.rank);
        break;
      case 1:
        agent.frozen_until = now_ + absl::Seconds(1 + Pick(30));
        break;
      case 2:
      case 3:
        StartCoordinator();
        break;
      case 4:
        coordinator_frozen_until_ = now_ + absl::Seconds(1 + Pick(10));
        break;
      case 6:
        // Every answer of storage is an error; what is asked of it may be done all the same.
        if (Chance(0.3)) outage_until_ = now_ + absl::Seconds(2 + Pick(60));
        break;
      case 5: {
        // The whole job dies and starts again from its last checkpoint.
        for (Agent& each : agents_) Reset(each, each.rank);
        break;
      }
    }
  }

  // After the calm nothing may hang.
  void CheckQuiet() {
    for (Agent& agent : agents_) {
      for (const auto& [step, at] : agent.begun) {
        // Storage that never answers is named as long as it is waited for.
        const auto stalled = agent.stalled.find(step);
        if (stalled != agent.stalled.end() && now_ - stalled->second < kLease) continue;
        if (now_ - at > 3 * kPhaseTimeout) {
          Violation(absl::StrCat("rank ", agent.rank, " still waits for the verdict of step ", step, " after ",
                                 absl::FormatDuration(now_ - at), " in phase ",
                                 v1::SaveState::Phase_Name(agent.saves[step].phase())));
        }
      }
    }
    for (const auto& [step, attempts] : directories_) {
      if (never_ > 0) break;  // what was to remove them may hang still
      for (uint32_t attempt : attempts) {
        if (orphans_.contains({step, attempt})) continue;
        if (!verdicts_.contains({step, attempt}) || !verdicts_[{step, attempt}].stands()) {
          Violation(absl::StrCat("files of step ", step, " attempt ", attempt, " were never removed"));
        }
      }
    }
    InCore([&](const Moment& moment) {
      Job* job = decisions_->Find(kJob);
      if (job == nullptr) return;
      for (const auto& [id, asked] : asked_) {
        if (asked.first != epoch_) continue;
        const auto checkpoint = job->Get({std::nullopt, id}, 0, moment);
        if (!checkpoint.has_value() || !checkpoint->ok()) continue;  // forgotten: it ended long ago
        const auto state = (*checkpoint)->state();
        const bool stalled = state == v1::Checkpoint::COMMITTING && (*checkpoint)->has_error();
        if (state != v1::Checkpoint::COMMITTED && state != v1::Checkpoint::ABORTED && !stalled) {
          Violation(absl::StrCat("request ", id, " has no end: ", (*checkpoint)->ShortDebugString()));
        }
      }
    });
  }

  const Planted planted_;
  absl::Time stormy_until_;
  uint64_t next_id_ = 100;

  std::vector<Agent> agents_;
  std::unique_ptr<Decisions> decisions_;
  uint64_t epoch_ = 0;
  uint64_t generation_ = 0;
  absl::Time coordinator_frozen_until_ = absl::InfinitePast();
  absl::Time outage_until_ = absl::InfinitePast();

  std::map<std::pair<int64_t, uint32_t>, VerdictSummary> verdicts_;
  std::map<int64_t, std::set<uint32_t>> directories_;
  std::set<std::pair<int64_t, uint32_t>> orphans_;
  std::set<std::tuple<int64_t, uint32_t, int>> files_;
  std::set<std::pair<int64_t, uint32_t>> told_aborted_;
  std::set<int64_t> committed_steps_;
  std::set<std::pair<int64_t, uint32_t>> overwrites_;  // attempts that may replace a commit
  std::map<std::string, std::pair<uint64_t, absl::Time>> asked_;
  int aborts_ = 0;
  int agreements_ = 0;
  int doubts_ = 0;
  int stalls_ = 0;
  int never_ = 0;
  int replaced_ = 0;
  int deletions_ = 0;
};

constexpr absl::Duration kStorm = absl::Seconds(120);
constexpr absl::Duration kCalm = absl::Seconds(80);  // four phase timeouts

TEST(CoreSimulationTest, Invariants_EverySeed_Hold) {
  const Seeds seeds = SeedsToRun(12);
  int commits = 0;
  int aborts = 0;
  int agreements = 0;
  int doubts = 0;
  int stalls = 0;
  int replaced = 0;
  int deletions = 0;
  for (uint64_t seed = seeds.first; seed < seeds.first + seeds.count; ++seed) {
    World world(seed, 2 + static_cast<int>(seed % 4), Planted::kNothing);
    const std::string violation = world.Run(kStorm, kCalm);
    ASSERT_EQ(violation, "") << "replay: CAIRN_SIMULATION_SEED=" << seed << " CAIRN_SIMULATION_LOG=1";
    commits += world.commits();
    aborts += world.aborts();
    agreements += world.agreements();
    doubts += world.doubts();
    stalls += world.stalls();
    replaced += world.replaced();
    deletions += world.deletions();
  }
  // The storm must neither have been so bad that nothing works nor so mild that nothing fails.
  if (seeds.count > 10) {
    EXPECT_GT(commits, 2 * static_cast<int>(seeds.count));
    EXPECT_GT(aborts, static_cast<int>(seeds.count));
    EXPECT_GT(agreements, static_cast<int>(seeds.count));
    EXPECT_GT(doubts, 0);
    EXPECT_GT(stalls, 0);
    EXPECT_GT(replaced, static_cast<int>(seeds.count));
    EXPECT_GT(deletions, replaced);
  }
}

class PlantedTest : public testing::TestWithParam<Planted> {};

TEST_P(PlantedTest, Fault_Planted_IsCaughtWithinAFewSeeds) {
  int caught = 0;
  for (uint64_t seed = 1; seed <= 40 && caught == 0; ++seed) {
    World world(seed, 3, GetParam());
    caught += world.Run(kStorm, kCalm).empty() ? 0 : 1;
  }
  EXPECT_GT(caught, 0);
}

INSTANTIATE_TEST_SUITE_P(All, PlantedTest,
                         testing::Values(Planted::kVerdictOverwritten, Planted::kWrittenTooEarly,
                                         Planted::kDoubtConcealed));

}  // namespace
}  // namespace cairn

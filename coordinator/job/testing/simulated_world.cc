#include "coordinator/job/testing/simulated_world.h"

#include <iterator>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "common/status/reason.h"
#include "common/status/status_proto.h"

namespace cairn {
namespace {

constexpr char kJob[] = "sim";
constexpr absl::Duration kPhaseTimeout = absl::Seconds(20);
constexpr absl::Duration kLease = absl::Seconds(4);
constexpr absl::Duration kStorageTimeout = absl::Seconds(12);
// A coordinator that is throttled runs so long in each second.
constexpr absl::Duration kThrottledRun = absl::Milliseconds(100);

}  // namespace

SimulatedWorld::SimulatedWorld(uint64_t seed, int ranks, PlantedFault planted)
    : Simulation(seed),
      planted_(planted),
      storage_(ranks),
      invariants_(storage_, ranks),
      agents_(static_cast<size_t>(ranks)) {
  if (planted_ == PlantedFault::kOutcomeOverwritten) storage_.PlantOverwrittenOutcomes();
  for (int rank = 0; rank < ranks; ++rank) {
    agents_[static_cast<size_t>(rank)].rank = rank;
    Restart(agents_[static_cast<size_t>(rank)]);
  }
  StartCoordinator();
}

std::string SimulatedWorld::Run(absl::Duration stormy, absl::Duration calm) {
  stormy_until_ = now_ + stormy;
  const absl::Time end = stormy_until_ + calm;
  for (SimulatedAgent& agent : agents_) After(Delay(), [this, &agent] { Synchronize(agent); });
  for (SimulatedAgent& agent : agents_) After(Delay(), [this, &agent] { Train(agent); });
  After(absl::Milliseconds(100), [this] { Tick(); });
  After(absl::Seconds(1), [this] { Disturb(); });
  After(absl::Seconds(1), [this] { Ask(); });
  After(absl::Seconds(1), [this] { Delete(); });
  RunUntil(end);
  if (violation().empty()) CheckQuiet();
  return violation();
}

SimulatedWorld::Tally SimulatedWorld::tally() const {
  Tally tally = tally_;
  tally.commits = invariants_.commits();
  tally.replaced = invariants_.replaced();
  tally.deletions = storage_.deletions();
  return tally;
}

absl::Duration SimulatedWorld::Delay() {
  return absl::Milliseconds(stormy() && Chance(0.05) ? 200 + Pick(3000) : 1 + Pick(40));
}

void SimulatedWorld::Restart(SimulatedAgent& agent) {
  const uint64_t incarnation = ++next_id_;
  agent.Restart(incarnation, ++next_id_);
}

void SimulatedWorld::StartCoordinator() {
  DecisionOptions options;
  options.coordinator_epoch = ++epoch_;
  options.phase_timeout = kPhaseTimeout;
  options.lease_ttl = kLease;
  options.storage_timeout = kStorageTimeout;
  core_ = std::make_unique<TestJob>(kJob, options, now_);
  listening_ = ListeningClock();
  protocol_ = std::make_unique<ProtocolInvariants>(kLease, now_);
  plan_variant_ = Pick(2);
  ++generation_;
}

absl::Time SimulatedWorld::CoordinatorRuns() const {
  if (now_ < coordinator_frozen_until_) return coordinator_frozen_until_;
  const absl::Duration in_second = now_ - absl::FromUnixSeconds(absl::ToUnixSeconds(now_));
  if (now_ < coordinator_throttled_until_ && in_second > kThrottledRun) return now_ + absl::Seconds(1) - in_second;
  return now_;
}

Moment SimulatedWorld::Now() {
  listening_.Pass(now_);
  return Moment{listening_.Running(now_), now_};
}

void SimulatedWorld::InCore(const std::function<void(const Moment&)>& event) {
  event(Now());
  // The bookkeeping of every event must be what follows from looking at everything.
  Check(core_->Missed());
  std::vector<CoreAction> actions = core_->TakeActions();
  for (const LogEvent& line : core_->TakeLog()) {
    Log(absl::StrCat("epoch=", epoch_, " ", line.Text()));
    protocol_->Logged(line, now_);
  }
  for (CoreAction& action : actions) {
    Check(protocol_->Before(action, agents_, now_));
    const absl::Duration delay = StorageDelay();
    if (delay == absl::InfiniteDuration()) ++never_;
    After(delay, [this, generation = generation_, action = std::move(action)] { Execute(generation, action); });
  }
}

void SimulatedWorld::Tick() {
  if (now_ >= CoordinatorRuns()) {
    const Moment moment = Now();
    core_->Tick(moment);
    InCore([](const Moment&) {});
  }
  After(absl::Milliseconds(100), [this] { Tick(); });
}

// A call that hangs takes effect, and is answered, long after everyone has stopped waiting for it; some never.
absl::Duration SimulatedWorld::StorageDelay() {
  if (!stormy() || !Chance(0.01)) return Delay();
  if (Chance(0.3)) return absl::InfiniteDuration();
  return absl::Seconds(5 + Pick(40));
}

void SimulatedWorld::Execute(uint64_t generation, const CoreAction& action) {
  const bool fails = stormy() && (now_ < outage_until_ || Chance(0.03));
  const absl::Status failure = fails ? MakeError(Reason::kStorageError, "the storage failed") : absl::OkStatus();
  const bool orphaned = generation != generation_;
  const auto or_failure = [&](StoredAttempts recovered) {
    return fails ? absl::StatusOr<StoredAttempts>(failure) : std::move(recovered);
  };
  Answer answer;
  if (std::get_if<RecoverJob>(&action) != nullptr) {
    answer = [all = or_failure(storage_.ReadAll())](Job& job, const Moment& moment) { job.OnRecovered(all, moment); };
  } else if (const auto* read = std::get_if<ReadStep>(&action); read != nullptr) {
    answer = [read = *read, step = or_failure(storage_.ReadStep(read->step))](Job& job, const Moment& moment) {
      job.OnStepRead(read.step, read.ticket, step, moment);
    };
  } else if (const auto* plan = std::get_if<PlanSave>(&action); plan != nullptr) {
    std::string digest = absl::StrCat("plan", plan_variant_, ":");
    for (const std::string& layout : plan->layout) absl::StrAppend(&digest, layout);
    PlannedSave planned{digest, 1};
    planned.moves = {{ProtocolInvariants::kGivesShards, ProtocolInvariants::kTakesShards, 1}};
    if (planted_ == PlantedFault::kTokenForAll) planned.moves.push_back({0, static_cast<int>(agents_.size()) - 1, 1});
    if (planted_ != PlantedFault::kTokenWithheld) planned.transfer_token = ProtocolInvariants::TokenOf(digest);
    answer = [key = plan->key, planned](Job& job, const Moment& moment) { job.OnSavePlanned(key, planned, moment); };
  } else if (const auto* reserve = std::get_if<ReserveAttempt>(&action); reserve != nullptr) {
    answer = Reserve(*reserve, failure, orphaned);
  } else if (const auto* make = std::get_if<MakeManifest>(&action); make != nullptr) {
    answer = [step = make->step, ticket = make->ticket, plan = make->plan_digest](Job& job, const Moment& moment) {
      job.OnManifest(step, ticket, MadeManifest{std::make_shared<std::string>(plan), 1}, moment);
    };
  } else if (const auto* put = std::get_if<PutOutcome>(&action); put != nullptr) {
    answer = Put(*put, failure);
  } else if (const auto* remove = std::get_if<RemoveFiles>(&action); remove != nullptr) {
    answer = Remove(*remove);
  } else if (const auto* change = std::get_if<ChangeSteps>(&action); change != nullptr) {
    answer = Change(*change, failure, orphaned);
  }
  if (orphaned || answer == nullptr) return;
  InCore([&](const Moment& moment) { answer(core_->job, moment); });
}

SimulatedWorld::Answer SimulatedWorld::Reserve(const ReserveAttempt& reserve, const absl::Status& failure,
                                               bool orphaned) {
  const auto reserved = storage_.Reserve(reserve, failure);
  // The next coordinator hears of the directory when it recovers; it may have recovered already.
  if (reserved.ok() && orphaned) invariants_.Orphan({reserve.step, reserved->attempt});
  return [step = reserve.step, ticket = reserve.ticket, reserved](Job& job, const Moment& moment) {
    job.OnReserved(step, ticket, reserved, moment);
  };
}

StoredAttempt SimulatedWorld::PutInStorage(const PutOutcome& put) {
  const auto [standing, taken] = storage_.PutIfAbsent(put);
  if (taken) Check(invariants_.AfterPut(standing));
  if (taken && put.manifest != nullptr && !storage_.WrittenBy({put.step, put.attempt}, *put.manifest)) {
    Violation(absl::StrCat("step ", put.step, " is committed by a plan by which a rank has not written"));
  }
  return standing;
}

SimulatedWorld::Answer SimulatedWorld::Put(const PutOutcome& put, const absl::Status& failure) {
  // A failure before it took effect, after it, or before an effect that comes later: of the last two the shell knows
  // only that it does not know.
  enum { kNone, kBefore, kAfter, kLate };
  const int kind = failure.ok() ? kNone : kBefore + Pick(3);
  PutAnswer answer{StoredAttempt(), kind > kBefore};
  if (kind != kNone) answer.standing = failure;
  if (answer.in_doubt && put.manifest != nullptr) ++tally_.doubts;
  if (planted_ == PlantedFault::kDoubtConcealed) answer.in_doubt = false;
  if (kind == kNone) {
    answer.standing = PutInStorage(put);
  } else if (kind == kAfter) {
    PutInStorage(put);
  } else if (kind == kLate) {
    After(absl::Milliseconds(1 + Pick(4000)), [this, put] { PutInStorage(put); });
  }
  return [step = put.step, ticket = put.ticket, answer](Job& job, const Moment& moment) {
    job.OnOutcome(step, ticket, answer, moment);
  };
}

SimulatedWorld::Answer SimulatedWorld::Remove(const RemoveFiles& remove) {
  Check(invariants_.BeforeRemove(remove));
  if (planted_ != PlantedFault::kFilesStay) storage_.Remove({remove.step, remove.attempt});
  Check(invariants_.Readable());
  return [step = remove.step, ticket = remove.ticket](Job& job, const Moment& moment) {
    job.OnRemoved(step, ticket, absl::OkStatus(), moment);
  };
}

SimulatedWorld::Answer SimulatedWorld::Change(const ChangeSteps& change, const absl::Status& failure, bool orphaned) {
  absl::StatusOr<ChangedSteps> changed = ChangedSteps();
  // An action that follows an overwrite may have taken effect when it fails.
  if (failure.ok() || std::holds_alternative<DeleteReplaced>(change.change)) changed = storage_.Change(change);
  if (orphaned) {
    // The next coordinator may have read storage before, so only the one after it hears of these.
    for (const StoredAttempt& deleted : changed->deleted) invariants_.Orphan({deleted.step, deleted.attempt});
  }
  Check(invariants_.Readable());
  if (!failure.ok()) changed = failure;
  return [ticket = change.ticket, changed](Job& job, const Moment& moment) {
    job.OnStepsChanged(ticket, changed, moment);
  };
}

// One way over the network, while the coordinator runs.
void SimulatedWorld::Send(std::function<void()> deliver) {
  if (stormy() && Chance(0.05)) return;
  After(Delay(), [this, deliver = std::move(deliver)] {
    const absl::Time runs = CoordinatorRuns();
    if (runs > now_) {
      After(runs - now_, deliver);
    } else {
      deliver();
    }
  });
}

void SimulatedWorld::Register(SimulatedAgent& agent) {
  v1::RegisterAgentRequest request;
  *request.mutable_agent() = agent.Identity(kJob);
  request.set_world_size(static_cast<uint32_t>(agents_.size()));
  // On the same machine it knows the process before it, and takes the rank at once.
  if (Chance(0.5)) request.add_predecessors(agent.predecessor);
  Send([this, &agent, incarnation = agent.incarnation, request] {
    if (request.agent().coordinator_epoch() > epoch_) return;
    InCore([&](const Moment& moment) {
      const auto response = core_->job.Register(request, moment);
      if (!response.ok()) return;
      protocol_->Registered(static_cast<int>(request.agent().rank()), request.agent().incarnation());
      for (const SimulatedAgent& other : agents_) core_->AddLayout(other.Layout(), 1, moment);
      Send([&agent, incarnation, answer = *response] {
        if (agent.incarnation != incarnation || answer.coordinator_epoch() < agent.epoch) return;
        agent.epoch = answer.coordinator_epoch();
        agent.registered = true;
        agent.revision = 0;
      });
    });
  });
}

void SimulatedWorld::Synchronize(SimulatedAgent& agent) {
  After(absl::Milliseconds(100 + Pick(100)), [this, &agent] { Synchronize(agent); });
  if (now_ < agent.frozen_until) return;
  if (!agent.registered) return Register(agent);
  const uint64_t incarnation = agent.incarnation;
  const auto deliver = [this, &agent, incarnation, request = agent.Report(kJob)] {
    v1::SynchronizeAgentRequest taken = request;
    if (planted_ == PlantedFault::kOvertakenTaken) taken.clear_sequence();
    InCore([&](const Moment& moment) {
      const absl::Status status = request.agent().coordinator_epoch() != epoch_
                                      ? MakeError(Reason::kStaleEpoch, "epoch")
                                      : core_->job.Synchronize(taken, moment);
      v1::SynchronizeAgentResponse orders;
      if (status.ok()) {
        orders = core_->job.OrdersFor(agent.rank, moment);
        Check(protocol_->AfterReport(request, orders, now_));
      }
      Send([this, &agent, incarnation, status, orders] {
        if (agent.incarnation != incarnation || now_ < agent.frozen_until) return;
        if (HasReason(status, Reason::kStaleIncarnation)) {
          Restart(agent);
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

void SimulatedWorld::Obey(SimulatedAgent& agent, const v1::SynchronizeAgentResponse& orders) {
  if (orders.has_arm() && agent.Obey(orders.arm())) ++tally_.agreements;
  for (const v1::SaveOrder& order : orders.saves()) Obey(agent, order);
}

void SimulatedWorld::Obey(SimulatedAgent& agent, const v1::SaveOrder& order) {
  const auto found = agent.calls.find(order.step());
  if (found == agent.calls.end()) return;
  v1::SaveState& save = found->second.state;
  if (order.call() != 0 && order.call() < save.call()) return;
  if (order.has_stalled()) {
    ++tally_.stalls;
    agent.told_stall[order.step()] = now_;
    if (!HasReason(StatusFromProto(order.stalled()), Reason::kStorageStalled)) Violation("a stall without its reason");
  }
  switch (order.phase()) {
    case v1::Phase::STAGING:
    case v1::Phase::WRITING:
      save.set_request_id(order.request_id());
      // One that has staged stages again by another plan. In the storm it may write what it has, and says so.
      if (save.phase() == v1::Phase::PLANNING ||
          (save.phase() == v1::Phase::STAGED && save.attempt() == 0 && (!stormy() || Chance(0.5)))) {
        save.set_plan_digest(order.plan_digest());
      }
      if (save.phase() == v1::Phase::PLANNING) Move(agent, order.step(), save.phase(), v1::Phase::STAGED);
      if (order.phase() == v1::Phase::WRITING && save.phase() == v1::Phase::STAGED) {
        save.set_attempt(order.attempt());
        save.set_attempt_nonce(order.attempt_nonce());
        // An order that names another plan may have come between.
        if (stormy() && Chance(0.02)) save.set_plan_digest("another plan");
        Move(agent, order.step(), save.phase(), v1::Phase::WRITTEN);
      }
      break;
    case v1::Phase::ABORTING:
      if (save.phase() != v1::Phase::STOPPED) Move(agent, order.step(), save.phase(), v1::Phase::STOPPED);
      break;
    case v1::Phase::COMMITTED:
    case v1::Phase::ABORTED:
      if (order.phase() == v1::Phase::ABORTED) ++tally_.aborts;
      Check(invariants_.Told(agent.rank, order));
      agent.EndSave(order.step());
      break;
    default:
      break;
  }
}

// The agent comes from one phase to the next after a while, unless something else has happened to it.
void SimulatedWorld::Move(SimulatedAgent& agent, int64_t step, v1::Phase::Value from, v1::Phase::Value to) {
  After(Delay(), [this, &agent, incarnation = agent.incarnation, step, from, to] {
    const auto found = agent.calls.find(step);
    if (agent.incarnation != incarnation || found == agent.calls.end()) return;
    v1::SaveState& save = found->second.state;
    if (save.phase() != from) return;
    if (now_ < agent.frozen_until) return Move(agent, step, from, to);
    if (to == v1::Phase::WRITTEN) {
      if (stormy() && Chance(0.05)) {
        save.set_phase(v1::Phase::FAILED);
        *save.mutable_error() = StatusToProto(MakeError(Reason::kNoSpace, "disk full"));
        return;
      }
      Write(agent, save);
    }
    save.set_phase(to);
  });
}

void SimulatedWorld::Write(SimulatedAgent& agent, v1::SaveState& save) {
  const bool early = planted_ == PlantedFault::kWrittenTooEarly && Chance(0.2);
  if (!early) storage_.Write({save.step(), save.attempt()}, agent.rank, save.plan_digest());
  save.clear_result();
  save.mutable_result()->add_files()->set_header_crc32c(static_cast<uint32_t>(agent.rank) + 1);
}

// A trainer makes a step, and saves at every 40th and where the job agreed to.
void SimulatedWorld::Train(SimulatedAgent& agent) {
  After(absl::Milliseconds(20 + Pick(20)), [this, &agent] { Train(agent); });
  if (now_ < agent.frozen_until || !agent.registered) return;
  // Training goes on when the slab is free: the outcome may come late.
  for (const auto& [step, call] : agent.calls) {
    if (call.state.phase() != v1::Phase::WRITTEN) return;
  }
  // Ranks of one job run in step: nobody is more than one ahead.
  for (const SimulatedAgent& other : agents_) {
    if (other.step < agent.step) return;
  }
  if (!agent.TryStep()) return;
  const bool agreed = agent.IsAtAgreedStep();
  const bool due = (stormy() && agent.step % 40 == 0) || agreed;
  if (due && !agent.calls.contains(agent.step)) agent.BeginSave(agent.step, /*overwrite=*/false, now_);
  // The step before is saved again, whether it was committed or not.
  if (stormy() && !agreed && agent.step % 80 == 20 && !agent.calls.contains(agent.step - 20)) {
    agent.BeginSave(agent.step - 20, /*overwrite=*/true, now_);
  }
}

void SimulatedWorld::Ask() {
  After(absl::Seconds(3 + Pick(5)), [this] { Ask(); });
  if (!stormy()) return;
  v1::CreateCheckpointRequest request;
  request.set_job(kJob);
  request.set_request_id(absl::StrCat("r", ++next_id_));
  // Some of those who wait for one save give up sooner.
  request.mutable_timeout()->set_seconds(Chance(0.3) ? 2 : 15);
  Send([this, request] {
    InCore([&](const Moment& moment) {
      const auto checkpoint = core_->job.Create(request, false, moment);
      if (checkpoint.has_value() && checkpoint->ok()) asked_[request.request_id()] = epoch_;
      if (Chance(0.1)) core_->job.Cancel({std::nullopt, request.request_id()}, moment);
    });
  });
}

void SimulatedWorld::Delete() {
  After(absl::Seconds(5 + Pick(10)), [this] { Delete(); });
  const auto standing = storage_.Standing();
  if (!stormy() || standing.empty()) return;
  const int64_t step = std::next(standing.begin(), Pick(static_cast<int>(standing.size())))->first;
  Send([this, step] {
    InCore([&](const Moment& moment) {
      uint64_t number = 0;
      ChangeSteps change{DeleteStep{step, "a test"}};
      if (Chance(0.3)) change.change = PruneSteps{PrunePolicy{.keep_last = 1 + Pick(3)}};
      core_->job.Change(change, number, /*patient=*/false, /*partly=*/false, moment);
    });
  });
}

void SimulatedWorld::Disturb() {
  After(absl::Seconds(2 + Pick(6)), [this] { Disturb(); });
  if (!stormy()) return;
  SimulatedAgent& agent = agents_[static_cast<size_t>(Pick(static_cast<int>(agents_.size())))];
  // Doubt that is concealed does harm when storage fails for longer than anyone waits for an abort record.
  if (planted_ == PlantedFault::kDoubtConcealed) {
    if (now_ >= outage_until_) outage_until_ = now_ + 2 * kPhaseTimeout;
    return;
  }
  switch (Pick(7)) {
    case 0:
      Restart(agent);
      break;
    case 1:
      agent.frozen_until = now_ + absl::Seconds(1 + Pick(30));
      break;
    case 2:
    case 3:
      StartCoordinator();
      break;
    case 4:
      (Chance(0.5) ? coordinator_frozen_until_ : coordinator_throttled_until_) = now_ + absl::Seconds(1 + Pick(10));
      break;
    case 5:
      // The whole job dies and starts again from its last checkpoint.
      for (SimulatedAgent& each : agents_) Restart(each);
      break;
    case 6:
      // Every answer of storage is an error; what is asked of it may be done all the same.
      if (Chance(0.3)) outage_until_ = now_ + absl::Seconds(2 + Pick(60));
      break;
  }
}

void SimulatedWorld::CheckQuiet() {
  for (SimulatedAgent& agent : agents_) {
    for (const auto& [step, call] : agent.calls) {
      // Storage that never answers is named as long as it is waited for.
      const auto stalled = agent.told_stall.find(step);
      if (stalled != agent.told_stall.end() && now_ - stalled->second < kLease) continue;
      if (now_ - call.begun <= 3 * kPhaseTimeout) continue;
      Violation(absl::StrCat("rank ", agent.rank, " still waits for the outcome of step ", step, " after ",
                             absl::FormatDuration(now_ - call.begun), " in phase ",
                             v1::Phase::Value_Name(call.state.phase())));
    }
  }
  if (never_ == 0) Check(invariants_.Tidy());  // else what was to remove files may hang still
  InCore([&](const Moment& moment) { CheckRequests(moment); });
}

// Every request for a save has an end that its coordinator tells.
void SimulatedWorld::CheckRequests(const Moment& moment) {
  for (const auto& [id, epoch] : asked_) {
    if (epoch != epoch_) continue;
    const auto checkpoint = core_->job.Get({std::nullopt, id}, 0, moment);
    if (!checkpoint.has_value() || !checkpoint->ok()) continue;  // forgotten: it ended long ago
    const auto state = (*checkpoint)->state();
    const bool stalled = state == v1::Phase::COMMITTING && (*checkpoint)->has_error();
    const bool ended = state == v1::Phase::COMMITTED || state == v1::Phase::ABORTED ||
                       state == v1::Phase::DELETED;  // it was committed before
    if (!ended && !stalled) {
      Violation(absl::StrCat("request ", id, " has no end: ", (*checkpoint)->ShortDebugString()));
    }
  }
}

}  // namespace cairn

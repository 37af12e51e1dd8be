#include "coordinator/server/dispatcher.h"

#include <algorithm>
#include <variant>

#include "absl/strings/str_cat.h"
#include "common/base/duration_text.h"
#include "common/format/checkpoint_path.h"
#include "common/process/log.h"
#include "common/resources/memory.h"
#include "common/status/reason.h"
#include "common/status/retry_delay.h"
#include "common/status/status.h"

namespace cairn {
namespace {

// A call whose work takes longer is answered without it.
constexpr absl::Duration kMaxWork = absl::Minutes(5);
constexpr absl::Duration kTick = ListeningClock::kPass;
// A job's tick takes at most one part in so many of a core, but comes at least this often.
constexpr int kTickShare = 20;
constexpr absl::Duration kMaxTick = absl::Seconds(2);
// After a turn comes a pause of so many times its length: the calls by which the answered agents come back take about
// as long as their answers did, and are not to stand in a line before all others'.
constexpr int kTurnPauses = 1;
constexpr absl::Duration kMaxTurnPause = absl::Milliseconds(20);
// Layouts from before the coordinator's start are kept for so long, for agents that come back.
constexpr absl::Duration kKeepFromBefore = absl::Minutes(10);
// A caller that is refused comes again after this.
constexpr absl::Duration kRefusedDelay = absl::Seconds(1);
// When the coordinator stops, work that was begun has this long to end.
constexpr absl::Duration kStopPatience = absl::Seconds(5);

}  // namespace

Dispatcher::Dispatcher(const DecisionOptions& options, Executor& executor, LayoutStore& layouts, const Clock& clock,
                       int workers)
    : clock_(clock),
      options_(options),
      executor_(executor),
      layouts_(layouts),
      admission_(workers),
      workers_(workers, options.storage_timeout, clock),
      timer_([this] { RunTimer(); }),
      turns_thread_([this] { RunTurns(); }) {}

absl::StatusOr<std::shared_ptr<Dispatcher::Cell>> Dispatcher::CellOf(const std::string& job) {
  CAIRN_RETURN_IF_ERROR(CheckJobName(job));
  MutexLock lock(mutex_);
  std::shared_ptr<Cell>& cell = cells_[job];
  if (cell == nullptr) cell = std::make_shared<Cell>(job, options_, kept_, Running());
  return cell;
}

std::vector<std::shared_ptr<Dispatcher::Cell>> Dispatcher::Cells() {
  MutexLock lock(mutex_);
  std::vector<std::shared_ptr<Cell>> cells;
  cells.reserve(cells_.size());
  for (const auto& [job, cell] : cells_) cells.push_back(cell);
  return cells;
}

void Dispatcher::RunTimer() {
  for (;;) {
    {
      MutexLock lock(mutex_);
      if (!stopped_) stop_.WaitFor(mutex_, kTick);
      if (stopped_) return;
      if (clock_.SteadyNow() >= from_before_until_) from_before_.clear();
    }
    Tick();
    WatchWorkers();
  }
}

void Dispatcher::RunTurns() {
  while (const std::shared_ptr<Cell> cell = NextTurn()) {
    const absl::Time begin = clock_.SteadyNow();
    Work work;
    {
      MutexLock lock(cell->mutex);
      Collect(*cell, work, Occasion::kTurn);
    }
    Release(std::move(work));
    const absl::Time end = clock_.SteadyNow();
    const absl::Time next = end + std::min(kTurnPauses * (end - begin), kMaxTurnPause);
    MutexLock lock(mutex_);
    while (!stopped_ && clock_.SteadyNow() < next) stop_.WaitFor(mutex_, next - clock_.SteadyNow());
  }
}

std::shared_ptr<Dispatcher::Cell> Dispatcher::NextTurn() {
  MutexLock lock(mutex_);
  while (!stopped_ && turns_.empty()) turn_.Wait(mutex_);
  if (stopped_) return nullptr;
  std::shared_ptr<Cell> cell = std::move(turns_.front());
  turns_.pop_front();
  cell->has_turn = false;
  return cell;
}

void Dispatcher::Probe(std::function<void(std::function<void()> ended)> call) {
  MutexLock lock(mutex_);
  probe_ = std::move(call);
}

Dispatcher::Strain Dispatcher::strain() {
  Strain strain;
  strain.transfers_refused = admission_.refused();
  strain.waits_refused = waits_refused_;
  strain.layouts_refused = layouts_.refused();
  MutexLock lock(listening_->mutex);
  strain.stopped = listening_->clock.stopped();
  strain.deaf = listening_->clock.deaf();
  return strain;
}

absl::Time Dispatcher::Running() {
  const absl::Time now = clock_.SteadyNow();
  MutexLock lock(listening_->mutex);
  listening_->clock.Pass(now);
  return listening_->clock.Running(now);
}

Moment Dispatcher::Now(Cell& cell) {
  cell.now = std::max(cell.now, Running());
  return {cell.now, clock_.WallNow()};
}

absl::Duration Dispatcher::WatchListening() {
  std::function<void(std::function<void()>)> call;
  {
    MutexLock lock(mutex_);
    call = probe_;
  }
  absl::Duration deaf;
  absl::Duration stopped;
  bool due = false;
  {
    MutexLock lock(listening_->mutex);
    const absl::Time now = clock_.SteadyNow();
    listening_->clock.Pass(now);
    deaf = listening_->clock.deaf();
    stopped = listening_->clock.stopped();
    due = call != nullptr && listening_->clock.Due(now);
    if (due) listening_->clock.Begin(now);
  }
  if (stopped - stops_told_ > options_.lease_ttl / 2) {
    Log(LogLevel::kWarn, "was_stopped", {{"for", DurationText(stopped - stops_told_)}});
    stops_told_ = stopped;
  }
  if (!due) return deaf;
  call([listening = listening_, &clock = clock_] {
    MutexLock lock(listening->mutex);
    listening->clock.End(clock.SteadyNow());
  });
  return deaf;
}

void Dispatcher::Tick() {
  const absl::Duration deaf = WatchListening();
  for (const std::shared_ptr<Cell>& cell : Cells()) {
    const absl::Time begin = clock_.SteadyNow();
    if (begin < cell->next_tick) continue;
    Work work;
    {
      MutexLock lock(cell->mutex);
      cell->job.Tick(Now(*cell), deaf);
      Collect(*cell, work, Occasion::kTimer);
    }
    Release(std::move(work));
    const absl::Time end = clock_.SteadyNow();
    // The larger the job, the rarer: what time brings must not take the time of what agents report.
    cell->next_tick = std::min(begin + kMaxTick, end + kTickShare * (end - begin));
  }
  MutexLock lock(mutex_);
  std::erase_if(cells_, [](const auto& entry) {
    Cell& cell = *entry.second;
    if (entry.second.use_count() > 1) return false;  // a call is on its way to it
    MutexLock cell_lock(cell.mutex);
    return cell.job.forgettable(cell.now) && cell.agents.empty() && cell.people.empty();
  });
}

void Dispatcher::OnLayout(const std::string& digest) {
  {
    MutexLock lock(kept_mutex_);
    const auto bytes = layouts_.Get(digest);
    if (bytes == nullptr) return;
    kept_.Add(digest, bytes->size());
  }
  for (const std::shared_ptr<Cell>& cell : Cells()) {
    EventOf(*cell, [&](Job& job, const Moment& moment) {
      job.OnLayout(digest, moment);
      return absl::OkStatus();
    }).IgnoreError();
  }
}

void Dispatcher::KeepForAWhile(const std::vector<std::string>& layouts) {
  {
    MutexLock lock(mutex_);
    HoldExactly(kept_, layouts, from_before_);
    from_before_until_ = clock_.SteadyNow() + kKeepFromBefore;
  }
  for (const std::string& digest : layouts) OnLayout(digest);
}

bool Dispatcher::MakeRoom(const std::string& job, bool all_jobs) {
  const auto release = [](Cell& cell) {
    MutexLock lock(cell.mutex);
    return cell.job.ReleaseOldestPlan();
  };
  const auto own = CellOf(job);
  bool released = own.ok() && release(**own);
  if (!released && all_jobs) {
    const std::vector<std::shared_ptr<Cell>> cells = Cells();
    released = std::any_of(cells.begin(), cells.end(), [&](const auto& cell) { return release(*cell); });
  }
  if (!released && all_jobs) {
    MutexLock lock(mutex_);
    released = !from_before_.empty();
    from_before_.clear();
  }
  MutexLock lock(kept_mutex_);
  kept_.DropUnheld();
  for (const std::string& digest : kept_.TakeDropped()) {
    layouts_.Drop(digest);
    released = true;
  }
  return released;
}

void Dispatcher::WatchWorkers() {
  absl::Status refused;
  const int stalled = workers_.ReplaceStalled(&refused);
  if (refused.ok() == threads_refused_) {
    threads_refused_ = !refused.ok();
    if (refused.ok()) {
      Log(LogLevel::kInfo, "threads_to_be_had");
    } else {
      Log(LogLevel::kWarn, "thread_refused", {{"error", refused}});
    }
  }
  if (stalled_calls_.exchange(stalled) != stalled) {
    Log(stalled == 0 ? LogLevel::kInfo : LogLevel::kWarn, "storage_stalled", {{"calls", stalled}});
  }
}

std::optional<Dispatcher::Answer> Dispatcher::Ask(Cell& cell, const AnswerPoll& poll, const Moment& moment, bool last) {
  std::optional<Answer> answer = poll(cell.job, moment, last);
  if (last && !answer.has_value()) {
    answer = Answer{MakeError(Reason::kStorageStalled, "the coordinator has not heard from its storage yet")};
  }
  return answer;
}

bool Dispatcher::TryAnswer(Cell& cell, const Held& held, const Moment& moment, Work& work) {
  std::optional<Answer> answer = Ask(cell, held.poll, moment, /*last=*/stopped_);
  if (!answer.has_value()) return false;
  work.answers.emplace_back(held.call, *std::move(answer));
  return true;
}

void Dispatcher::AskWoken(Cell& cell, const Moment& moment, Work& work, size_t most) {
  for (size_t asked = 0; asked < most && !cell.unasked.empty();) {
    const auto call = cell.agents.find(*cell.unasked.Take());
    if (call == cell.agents.end()) continue;
    ++asked;
    if (TryAnswer(cell, call->second, moment, work)) cell.agents.erase(call);
  }
}

void Dispatcher::Collect(Cell& cell, Work& work, Occasion occasion) {
  const Moment moment = Now(cell);
  const auto answered = [&](const auto& entry) { return TryAnswer(cell, entry.second, moment, work); };
  const bool queued = !cell.unasked.empty();
  const Job::Woken woken = cell.job.TakeWoken();
  if (woken.all) {
    for (const auto& [rank, held] : cell.agents) cell.unasked.Add(rank);
  } else {
    for (const int rank : woken.ranks) cell.unasked.Add(rank);
  }
  const bool turn = !queued || occasion == Occasion::kTurn;
  AskWoken(cell, moment, work, turn ? kAskedAtOnce : occasion == Occasion::kCall ? 1 : 0);
  work.unasked = !cell.unasked.empty();
  if (woken.all || occasion == Occasion::kTimer || stopped_) absl::erase_if(cell.people, answered);
  if (stopped_) absl::erase_if(cell.agents, answered);
  {
    MutexLock lock(kept_mutex_);
    for (const std::string& digest : kept_.TakeDropped()) layouts_.Drop(digest);
  }
  work.cell = cell.shared_from_this();
  work.effects = cell.job.TakeEffects();
}

void Dispatcher::Release(Work work) {
  for (const LogEvent& event : work.effects.log) Log(event);
  // Before anybody is told of the end: who then asks for the timeline finds it.
  for (const auto& timeline : work.effects.timelines) {
    if (on_timeline_) on_timeline_(timeline);
  }
  const uint64_t leases = work.effects.leases_ended;
  if (leases > 0 && on_leases_ended_) on_leases_ended_(work.cell->name, leases);
  for (auto& [call, answer] : work.answers) {
    if (!call->Claim()) continue;
    if (answer.respond) answer.respond();
    call->AnswerClaimed(answer.status);
  }
  for (CoreAction& action : work.effects.actions) {
    workers_.Submit([this, cell = work.cell, action = std::move(action)] { Execute(*cell, action); });
  }
  if (!work.unasked) return;
  MutexLock lock(mutex_);
  if (std::exchange(work.cell->has_turn, true)) return;
  turns_.push_back(std::move(work.cell));
  turn_.NotifyAll();
}

grpc::ServerUnaryReactor* Dispatcher::HoldAnswer(grpc::CallbackServerContext* context, const Caller& caller,
                                                 absl::Duration max_wait, AnswerPoll poll) {
  const absl::StatusOr<std::shared_ptr<Cell>> found = CellOf(caller.job);
  if (!found.ok()) return FinishNow(context, found.status());
  const std::shared_ptr<Cell>& cell = *found;
  Work work;
  std::optional<Answer> now;
  std::shared_ptr<HeldCall> call;
  {
    MutexLock lock(cell->mutex);
    const Moment moment = Now(*cell);
    if (const auto earlier = cell->agents.find(caller.rank); earlier != cell->agents.end()) {
      work.answers.emplace_back(earlier->second.call, *Ask(*cell, earlier->second.poll, moment, /*last=*/true));
      cell->agents.erase(earlier);
    }
    now = Ask(*cell, poll, moment, /*last=*/stopped_ || max_wait <= absl::ZeroDuration());
    if (!now.has_value() && caller.rank < 0 && cell->people.size() >= kMostPeople) {
      ++waits_refused_;
      now = Answer{WithRetryDelay(
          MakeError(Reason::kOverloaded,
                    absl::StrCat(caller.job, ": ", kMostPeople, " calls wait for news of the job already"),
                    {{"job", caller.job}}),
          kRefusedDelay)};
    }
    if (!now.has_value()) {
      // The call's end takes the lock too, so it cannot come before the call stands in its list.
      call = HeldCall::Start(
          max_wait, [this, cell = cell, caller](HeldCall& ended, bool timer) { OnEnd(*cell, caller, ended, timer); });
      Held held{std::move(poll), call};
      if (caller.rank >= 0) {
        cell->agents.emplace(caller.rank, std::move(held));
      } else {
        cell->people.emplace(call.get(), std::move(held));
      }
    }
    Collect(*cell, work, Occasion::kCall);
  }
  Release(std::move(work));
  if (call != nullptr) return call->reactor();
  if (now->respond) now->respond();
  return FinishNow(context, now->status);
}

void Dispatcher::OnEnd(Cell& cell, const Caller& caller, HeldCall& call, bool timer) {
  Work work;
  {
    MutexLock lock(cell.mutex);
    const auto end = [&](auto& calls, auto held) {
      if (held == calls.end() || held->second.call.get() != &call) return;
      if (timer) {
        const Moment moment = Now(cell);
        work.answers.emplace_back(held->second.call, *Ask(cell, held->second.poll, moment, /*last=*/true));
      }
      calls.erase(held);
    };
    if (caller.rank >= 0) {
      end(cell.agents, cell.agents.find(caller.rank));
    } else {
      end(cell.people, cell.people.find(&call));
    }
    Collect(cell, work);
  }
  Release(std::move(work));
}

grpc::ServerUnaryReactor* Dispatcher::AnswerOnWorker(std::function<Answer()> work,
                                                     std::shared_ptr<Admission::Place> place) {
  auto call = HeldCall::Start(kMaxWork, [](HeldCall& ended, bool timer) {
    if (timer) {
      ended.Answer(MakeError(Reason::kStorageStalled,
                             absl::StrCat("the coordinator's storage did not answer within ", DurationText(kMaxWork))));
    }
  });
  grpc::ServerUnaryReactor* reactor = call->reactor();
  const bool taken = workers_.Offer([call, work = std::move(work), place = std::move(place), &clock = clock_] {
    if (call->finished()) return;
    const absl::Time begin = clock.SteadyNow();
    Answer answer;
    const absl::Status enough = WithMemory("to answer the call", [&] {
      answer = work();
      return absl::OkStatus();
    });
    if (!enough.ok()) answer = {enough};
    if (place != nullptr) place->Took(clock.SteadyNow() - begin);
    if (!call->Claim()) return;
    if (answer.respond) answer.respond();
    call->AnswerClaimed(answer.status);
  });
  if (!taken) call->Answer(MakeError(Reason::kStorageStalled, "too many calls wait for the coordinator's storage"));
  return reactor;
}

std::vector<v1::JobSummary> Dispatcher::Jobs() {
  std::vector<v1::JobSummary> jobs;
  for (const std::shared_ptr<Cell>& cell : Cells()) {
    MutexLock lock(cell->mutex);
    if (cell->job.known()) jobs.push_back(cell->job.Summary(Now(*cell)));
  }
  return jobs;
}

bool Dispatcher::busy() {
  for (const std::shared_ptr<Cell>& cell : Cells()) {
    MutexLock lock(cell->mutex);
    if (cell->job.busy()) return true;
  }
  return false;
}

bool Dispatcher::Stop() {
  {
    MutexLock lock(mutex_);
    stopped_ = true;
    stop_.NotifyAll();
    turn_.NotifyAll();
  }
  // A call that comes to a job later is answered at once.
  for (const std::shared_ptr<Cell>& cell : Cells()) {
    Work work;
    {
      MutexLock lock(cell->mutex);
      Collect(*cell, work);
    }
    Release(std::move(work));
  }
  if (timer_.joinable()) timer_.join();
  if (turns_thread_.joinable()) turns_thread_.join();
  return workers_.Stop(kStopPatience);
}

void Dispatcher::Execute(Cell& cell, const CoreAction& action) {
  std::visit(
      [&](const auto& what) {
        using What = std::decay_t<decltype(what)>;
        const auto result = [&] {
          // Only AttemptStore knows how a put ended, even if memory ran out.
          if constexpr (std::is_same_v<What, PutOutcome>) {
            return executor_.Run(cell.name, what);
          } else {
            return WithMemory(absl::StrCat("for ", cell.name), [&] { return executor_.Run(cell.name, what); });
          }
        }();
        EventOf(cell, [&](Job& job, const Moment& moment) {
          if constexpr (std::is_same_v<What, RecoverJob>) job.OnRecovered(result, moment);
          if constexpr (std::is_same_v<What, ReadStep>) job.OnStepRead(what.step, what.ticket, result, moment);
          if constexpr (std::is_same_v<What, PlanSave>) job.OnSavePlanned(what.key, result, moment);
          if constexpr (std::is_same_v<What, ReserveAttempt>) {
            job.OnReserved(what.step, what.ticket, result, moment);
          }
          if constexpr (std::is_same_v<What, MakeManifest>) {
            job.OnManifest(what.step, what.ticket, result, moment);
          }
          if constexpr (std::is_same_v<What, PutOutcome>) job.OnOutcome(what.step, what.ticket, result, moment);
          if constexpr (std::is_same_v<What, RemoveFiles>) job.OnRemoved(what.step, what.ticket, result, moment);
          if constexpr (std::is_same_v<What, ChangeSteps>) job.OnStepsChanged(what.ticket, result, moment);
          if constexpr (std::is_same_v<What, PlanLoad>) {
            job.OnLoadPlanned(what.number, what.ticket, result, moment);
          }
          if constexpr (std::is_same_v<What, VerifyLoad>) {
            job.OnLoadVerified(what.number, what.ticket, result, moment);
          }
          return absl::OkStatus();
        }).IgnoreError();
        // Nobody waits for it.
        if constexpr (std::is_same_v<What, PlanSave>) {
          if (!result.ok()) return;
          WithMemory("to keep a plan", [&] {
            executor_.Keep(what, *result);
            return absl::OkStatus();
          }).IgnoreError();
        }
      },
      action);
}

}  // namespace cairn

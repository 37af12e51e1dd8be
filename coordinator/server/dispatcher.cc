#include "coordinator/server/dispatcher.h"

#include <cstdio>
#include <variant>

#include "absl/strings/str_cat.h"
#include "common/resources/memory.h"
#include "common/status/reason.h"

namespace cairn {
namespace {

// A call whose work takes longer is answered without it.
constexpr absl::Duration kMaxWork = absl::Minutes(5);
constexpr absl::Duration kTick = absl::Milliseconds(100);
// When the coordinator stops, work that was begun has this long to end.
constexpr absl::Duration kStopPatience = absl::Seconds(5);

}  // namespace

void LogLine(const Clock& clock, const std::string& text) {
  std::string safe = text;
  for (char& c : safe) {
    if (static_cast<unsigned char>(c) < 0x20) c = ' ';
  }
  const std::string line =
      absl::StrCat(absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ", clock.WallNow(), absl::UTCTimeZone()), " ", safe, "\n");
  std::fwrite(line.data(), 1, line.size(), stderr);
}

Dispatcher::Dispatcher(const DecisionOptions& options, Executor& executor, LayoutStore& layouts, const Clock& clock,
                       int workers)
    : clock_(clock),
      executor_(executor),
      layouts_(layouts),
      workers_(workers, options.storage_timeout, clock),
      decisions_(options),
      timer_([this] { RunTimer(); }) {}

void Dispatcher::RunTimer() {
  for (;;) {
    {
      MutexLock lock(mutex_);
      if (!stopped_) stop_.WaitFor(mutex_, kTick);
      if (stopped_) return;
    }
    Effects effects;
    {
      MutexLock lock(mutex_);
      decisions_.Tick(clock_.SteadyNow(), clock_.WallNow());
      Collect(effects, /*people=*/true);
    }
    Release(std::move(effects));
    WatchWorkers();
  }
}

void Dispatcher::WatchWorkers() {
  absl::Status refused;
  const int stalled = workers_.ReplaceStalled(&refused);
  if (refused.ok() == threads_refused_) {
    threads_refused_ = !refused.ok();
    LogLine(clock_, refused.ok() ? std::string("event=threads-to-be-had")
                                 : absl::StrCat("event=thread-refused error=\"", refused.message(), "\""));
  }
  if (stalled_calls_.exchange(stalled) != stalled)
    LogLine(clock_, absl::StrCat("event=storage-stalled calls=", stalled));
}

std::optional<Dispatcher::Answer> Dispatcher::Ask(const AnswerPoll& poll, const Environment& environment, bool last) {
  std::optional<Answer> answer = poll(decisions_, environment, last);
  if (last && !answer.has_value()) {
    answer = Answer{MakeError(Reason::kStorageStalled, "the coordinator has not heard from its storage yet")};
  }
  return answer;
}

bool Dispatcher::TryAnswer(const Held& held, const Environment& environment, Effects& effects) {
  std::optional<Answer> answer = Ask(held.poll, environment, /*last=*/stopped_);
  if (!answer.has_value()) return false;
  effects.answers.emplace_back(held.call, *std::move(answer));
  return true;
}

void Dispatcher::Collect(Effects& effects, bool people) {
  const Environment environment = decisions_.At(clock_.SteadyNow(), clock_.WallNow());
  const auto answered = [&](const auto& entry) { return TryAnswer(entry.second, environment, effects); };
  for (const auto& [job, woken] : decisions_.TakeWoken()) {
    people = people || woken.all;
    const auto held = agents_.find(job);
    if (held == agents_.end()) continue;
    if (woken.all) {
      absl::erase_if(held->second, answered);
    } else {
      for (int rank : woken.ranks) {
        const auto call = held->second.find(rank);
        if (call != held->second.end() && answered(*call)) held->second.erase(call);
      }
    }
    if (held->second.empty()) agents_.erase(held);
  }
  if (people || stopped_) absl::erase_if(people_, answered);
  if (stopped_) {
    for (auto& [job, held] : agents_) absl::erase_if(held, answered);
  }
  // This happens under the lock, so that the bytes of every layout that the decisions count as here are here.
  for (const std::string& digest : decisions_.layouts().TakeDropped()) layouts_.Drop(digest);
  effects.actions = decisions_.TakeActions();
  effects.log = decisions_.TakeLog();
}

void Dispatcher::Release(Effects effects) {
  for (const std::string& line : effects.log) LogLine(clock_, line);
  for (auto& [call, answer] : effects.answers) {
    if (!call->Claim()) continue;
    if (answer.respond) answer.respond();
    call->AnswerClaimed(answer.status);
  }
  for (CoreAction& action : effects.actions) {
    workers_.Submit([this, action = std::move(action)] { Execute(action); });
  }
}

grpc::ServerUnaryReactor* Dispatcher::HoldAnswer(grpc::CallbackServerContext* context, const Caller& caller,
                                                 absl::Duration max_wait, AnswerPoll poll) {
  Effects effects;
  std::optional<Answer> now;
  std::shared_ptr<HeldCall> call;
  {
    MutexLock lock(mutex_);
    const Environment environment = decisions_.At(clock_.SteadyNow(), clock_.WallNow());
    if (const auto job = agents_.find(caller.job); caller.rank >= 0 && job != agents_.end()) {
      if (const auto earlier = job->second.find(caller.rank); earlier != job->second.end()) {
        effects.answers.emplace_back(earlier->second.call, *Ask(earlier->second.poll, environment, /*last=*/true));
        job->second.erase(earlier);
      }
    }
    now = Ask(poll, environment, /*last=*/stopped_ || max_wait <= absl::ZeroDuration());
    if (!now.has_value()) {
      // The call's end takes the lock too, so it cannot come before the call stands in its list.
      call = HeldCall::Start(max_wait, [this, caller](HeldCall& ended, bool timer) { OnEnd(caller, ended, timer); });
      Held held{std::move(poll), call};
      if (caller.rank >= 0) {
        agents_[caller.job].emplace(caller.rank, std::move(held));
      } else {
        people_.emplace(call.get(), std::move(held));
      }
    }
    Collect(effects);
  }
  Release(std::move(effects));
  if (call != nullptr) return call->reactor();
  if (now->respond) now->respond();
  return FinishNow(context, now->status);
}

void Dispatcher::OnEnd(const Caller& caller, HeldCall& call, bool timer) {
  Effects effects;
  {
    MutexLock lock(mutex_);
    const auto end = [&](auto& calls, auto held) {
      if (held == calls.end() || held->second.call.get() != &call) return;
      if (timer) {
        const Environment environment = decisions_.At(clock_.SteadyNow(), clock_.WallNow());
        effects.answers.emplace_back(held->second.call, *Ask(held->second.poll, environment, /*last=*/true));
      }
      calls.erase(held);
    };
    if (caller.rank < 0) {
      end(people_, people_.find(&call));
    } else if (const auto job = agents_.find(caller.job); job != agents_.end()) {
      end(job->second, job->second.find(caller.rank));
      if (job->second.empty()) agents_.erase(job);
    }
    Collect(effects);
  }
  Release(std::move(effects));
}

grpc::ServerUnaryReactor* Dispatcher::AnswerOnWorker(std::function<Answer()> work) {
  auto call = HeldCall::Start(kMaxWork, [](HeldCall& ended, bool timer) {
    if (timer) {
      ended.Answer(MakeError(Reason::kStorageStalled, absl::StrCat("the coordinator's storage did not answer within ",
                                                                   absl::FormatDuration(kMaxWork))));
    }
  });
  grpc::ServerUnaryReactor* reactor = call->reactor();
  const bool taken = workers_.Offer([call, work = std::move(work)] {
    if (call->finished()) return;
    Answer answer;
    const absl::Status enough = WithMemory("to answer the call", [&] {
      answer = work();
      return absl::OkStatus();
    });
    if (!enough.ok()) answer = {enough};
    if (!call->Claim()) return;
    if (answer.respond) answer.respond();
    call->AnswerClaimed(answer.status);
  });
  if (!taken) call->Answer(MakeError(Reason::kStorageStalled, "too many calls wait for the coordinator's storage"));
  return reactor;
}

bool Dispatcher::busy() {
  MutexLock lock(mutex_);
  return decisions_.busy();
}

bool Dispatcher::Stop() {
  Effects effects;
  {
    MutexLock lock(mutex_);
    if (!stopped_) {
      stopped_ = true;
      stop_.NotifyAll();
      Collect(effects);
    }
  }
  Release(std::move(effects));
  if (timer_.joinable()) timer_.join();
  return workers_.Stop(kStopPatience);
}

void Dispatcher::Execute(const CoreAction& action) {
  const std::string& name = action.job;
  // A job that was forgotten meanwhile needs no result.
  const auto apply = [&](auto function) {
    Event([&](Decisions& decisions, const Environment& environment) {
      if (Job* job = decisions.Find(name); job != nullptr) function(*job, environment);
      return 0;
    });
  };
  std::visit(
      [&](const auto& what) {
        using What = std::decay_t<decltype(what)>;
        const auto result = [&] {
          // Only AttemptStore knows how a put ended, even if memory ran out.
          if constexpr (std::is_same_v<What, PutVerdict>) {
            return executor_.Run(name, what);
          } else {
            return WithMemory(absl::StrCat("for ", name), [&] { return executor_.Run(name, what); });
          }
        }();
        apply([&](Job& job, const Environment& environment) {
          if constexpr (std::is_same_v<What, RecoverJob>) job.OnRecovered(result, environment);
          if constexpr (std::is_same_v<What, ReadStep>) job.OnStepRead(what.step, what.ticket, result, environment);
          if constexpr (std::is_same_v<What, PlanSave>) job.OnSavePlanned(what.key, result, environment);
          if constexpr (std::is_same_v<What, ReserveAttempt>) {
            job.OnReserved(what.step, what.ticket, result, environment);
          }
          if constexpr (std::is_same_v<What, MakeManifest>) {
            job.OnManifest(what.step, what.ticket, result, environment);
          }
          if constexpr (std::is_same_v<What, PutVerdict>) job.OnVerdict(what.step, what.ticket, result, environment);
          if constexpr (std::is_same_v<What, RemoveFiles>) job.OnRemoved(what.step, what.ticket, result, environment);
          if constexpr (std::is_same_v<What, PlanLoad>) {
            job.OnLoadPlanned(what.number, what.ticket, result, environment);
          }
        });
        // Nobody waits for it.
        if constexpr (std::is_same_v<What, PlanSave>) {
          if (!result.ok()) return;
          WithMemory("to keep a plan", [&] {
            executor_.Keep(what, *result);
            return absl::OkStatus();
          }).IgnoreError();
        }
      },
      action.what);
}

}  // namespace cairn

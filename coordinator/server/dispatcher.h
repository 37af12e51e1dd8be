// Runs the decisions: it puts a lock around those of each job, runs their actions on workers, writes their log to
// standard error, and holds the calls that wait for them.
#ifndef CAIRN_COORDINATOR_SERVER_DISPATCHER_H_
#define CAIRN_COORDINATOR_SERVER_DISPATCHER_H_

#include <atomic>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/rpc/reactor.h"
#include "coordinator/decision/listening_clock.h"
#include "coordinator/job/job.h"
#include "coordinator/server/admission.h"
#include "coordinator/server/ask_queue.h"
#include "coordinator/server/executor.h"
#include "coordinator/server/worker_pool.h"
#include "store/plan/layout_store.h"

namespace cairn {

// Thread-safe. Each job has a lock, so that a large job never delays another's heartbeats. It is never held while a
// call is answered or an action runs. If an event may have answered the held calls of thousands of ranks, at most
// kAskedAtOnce of them are asked under the lock, and the others by a thread that gives one job after the other its
// turn, with pauses. Each agent calls again at once when it has its answer, and gRPC reads calls in the order in which
// they come. So the calls of a small job are never behind all those of a large one.
//
// gRPC frees a call's request and response as soon as the call has ended, also if its caller cancels it. So work that
// runs later is given neither. It makes a response of its own, which is swapped in if the call still waits.
class Dispatcher {
 public:
  // Says under the lock what a held call answers, or nothing if it must wait on. `last` means that its time is over, so
  // that it must answer. It must not hold pointers to the call's request.
  template <typename Response>
  using Poll = std::function<std::optional<absl::StatusOr<Response>>(Job& job, const Moment& moment, bool last)>;
  // The same for an answer that many calls get.
  template <typename Response>
  using SharedPoll = Poll<std::shared_ptr<const Response>>;

  // At most so many calls of people are held for a job.
  static constexpr size_t kMostPeople = 1024;
  // So many held calls are asked before the job's lock is let go, and before the next job has its turn.
  static constexpr size_t kAskedAtOnce = 64;

  Dispatcher(const DecisionOptions& options, Executor& executor, LayoutStore& layouts, const Clock& clock, int workers);
  ~Dispatcher() { Stop(); }

  // Applies an event to a job: `function(job, moment)`, which returns a Status or a StatusOr. A job that nobody has
  // spoken of is made, and forgotten again if nothing comes of it. INVALID_ARGUMENT (BAD_JOB_NAME).
  template <typename Function>
  auto Event(const std::string& job, Function function) -> std::invoke_result_t<Function, Job&, const Moment&> {
    const absl::StatusOr<std::shared_ptr<Cell>> cell = CellOf(job);
    if (!cell.ok()) return cell.status();
    return EventOf(**cell, function);
  }

  // The bytes of a layout are in the store: tells every job. Ignored if they have gone again.
  void OnLayout(const std::string& digest);
  // Drops layouts that nothing runs by: those of the oldest save plan that `job` keeps for saves to come, with
  // `all_jobs` of any job, and those that are kept for agents of before the start. Returns false if there are none.
  // See LayoutStore::OnFull.
  bool MakeRoom(const std::string& job, bool all_jobs);
  // Begins to ask, by calls to this coordinator itself, whether it can listen: `call` makes one and runs what it is
  // given when the answer has come, or an error. See listening_clock.h.
  void Probe(std::function<void(std::function<void()> ended)> call);

  // Keeps these layouts, whose bytes are in the store, until the agents have had the time to come back. They belong to
  // plans of an earlier coordinator.
  void KeepForAWhile(const std::vector<std::string>& layouts);

  // Whose call is held.
  struct Caller {
    std::string job;
    int rank = -1;  // an agent's; -1 for people
  };
  // Answers a call when `poll` has an answer: now, later, or when `max_wait` is over. An agent's call is asked again
  // when its rank is woken; a later call of the same rank ends its wait. Calls of people are asked again when all ranks
  // are woken, and every moment. If as many of them wait as may, the next one is refused: RESOURCE_EXHAUSTED
  // (OVERLOADED), with a delay.
  template <typename Response>
  grpc::ServerUnaryReactor* Hold(grpc::CallbackServerContext* context, const Caller& caller, absl::Duration max_wait,
                                 Response* response, std::type_identity_t<Poll<Response>> poll) {
    return HoldAnswer(
        context, caller, max_wait,
        [response, poll = std::move(poll)](Job& job, const Moment& moment, bool last) -> std::optional<Answer> {
          std::optional<absl::StatusOr<Response>> made = poll(job, moment, last);
          if (!made.has_value()) return std::nullopt;
          return AnswerWith(*std::move(made), response);
        });
  }

  template <typename Response>
  grpc::ServerUnaryReactor* HoldShared(grpc::CallbackServerContext* context, const Caller& caller,
                                       absl::Duration max_wait, Response* response,
                                       std::type_identity_t<SharedPoll<Response>> poll) {
    return HoldAnswer(
        context, caller, max_wait,
        [response, poll = std::move(poll)](Job& job, const Moment& moment, bool last) -> std::optional<Answer> {
          auto made = poll(job, moment, last);
          if (!made.has_value()) return std::nullopt;
          if (!made->ok()) return Answer{made->status()};
          return Answer{absl::OkStatus(), [response, shared = **made] { *response = *shared; }};
        });
  }

  // Answers a call with what `work` makes of a copy of its request on a worker. `work` is a function without captures,
  // so that nothing of the call can slip in. `place`: of work that needed admission.
  template <typename Service, typename Request, typename Response>
  grpc::ServerUnaryReactor* OnWorker(Service& service, const Request& request, Response* response,
                                     std::type_identity_t<absl::StatusOr<Response> (*)(Service&, const Request&)> work,
                                     std::shared_ptr<Admission::Place> place = nullptr) {
    return AnswerOnWorker([&service, request, response, work] { return AnswerWith(work(service, request), response); },
                          std::move(place));
  }
  // Takes an upload or download whose call holds so many bytes. RESOURCE_EXHAUSTED (OVERLOADED): the caller is to come
  // again later.
  absl::StatusOr<std::shared_ptr<Admission::Place>> Admit(uint64_t bytes) {
    return admission_.Enter(bytes, clock_.SteadyNow());
  }

  // Runs `work` on a worker; ignored after Stop.
  void InBackground(std::function<void()> work) { workers_.Submit(std::move(work)); }

  // Is called with each operation that has ended, without a lock, from any thread. Must be set before the first event.
  using OnTimeline = std::function<void(const std::shared_ptr<const OperationTimeline>&)>;
  // The same with the number of leases of a job that have ended.
  using OnLeasesEnded = std::function<void(const std::string& job, uint64_t leases)>;
  void Observe(OnTimeline on_timeline, OnLeasesEnded on_leases_ended) {
    on_timeline_ = std::move(on_timeline);
    on_leases_ended_ = std::move(on_leases_ended);
  }
  // Says what has kept this coordinator from serving its callers, in all since the start.
  struct Strain {
    absl::Duration stopped;  // the process did not run
    absl::Duration deaf;     // it ran, and was too busy to listen
    uint64_t transfers_refused = 0;
    uint64_t waits_refused = 0;  // of people
    uint64_t layouts_refused = 0;
  };
  Strain strain();
  // The jobs in the order of their names.
  std::vector<v1::JobSummary> Jobs();

  bool busy();
  // Threads that wait for storage beyond DecisionOptions.storage_timeout.
  int stalled_calls() const { return stalled_calls_.load(); }
  // Answers all held calls and ends workers and timer. Returns false if storage still holds a thread that uses the
  // executor; then nothing that the thread uses may be destroyed. Idempotent.
  bool Stop();

 private:
  struct Answer {
    absl::Status status;
    // Writes the response; called without the lock, by whoever may answer.
    std::function<void()> respond = nullptr;
  };
  using AnswerPoll = std::function<std::optional<Answer>(Job& job, const Moment& moment, bool last)>;

  template <typename Response>
  static Answer AnswerWith(absl::StatusOr<Response> made, Response* response) {
    if (!made.ok()) return {made.status()};
    auto kept = std::make_shared<Response>(*std::move(made));
    return {absl::OkStatus(), [response, kept] { response->Swap(kept.get()); }};
  }

  struct Held {
    AnswerPoll poll;
    std::shared_ptr<HeldCall> call;
  };
  using HeldAgents = absl::flat_hash_map<int, Held>;  // by rank
  struct Cell;
  // What is left to do when the lock of a job is let go.
  struct Work {
    std::shared_ptr<Cell> cell;
    Effects effects;
    std::vector<std::pair<std::shared_ptr<HeldCall>, Answer>> answers;
    bool unasked = false;  // some held calls are to be asked yet
  };

  // One job, and the calls that wait for its decisions. It is kept while a call or an action is on its way to it.
  struct Cell : std::enable_shared_from_this<Cell> {
    Cell(const std::string& job_name, const DecisionOptions& options, LayoutTable& layouts, absl::Time started)
        : name(job_name), now(started), job(job_name, options, layouts, started) {}

    const std::string name;
    Mutex mutex;
    absl::Time now ABSL_GUARDED_BY(mutex);  // of the last event
    Job job ABSL_GUARDED_BY(mutex);
    HeldAgents agents ABSL_GUARDED_BY(mutex);
    // The ranks whose calls are to be asked yet. Some may have none any more.
    AskQueue unasked ABSL_GUARDED_BY(mutex);
    absl::flat_hash_map<HeldCall*, Held> people ABSL_GUARDED_BY(mutex);
    absl::Time next_tick = absl::InfinitePast();  // the timer's
    bool has_turn = false;                        // it stands in turns_, whose lock guards this
  };

  // Makes it if it is new. INVALID_ARGUMENT (BAD_JOB_NAME).
  absl::StatusOr<std::shared_ptr<Cell>> CellOf(const std::string& job);
  std::vector<std::shared_ptr<Cell>> Cells();
  // Makes the moment of an event of the job. It is never before that of an earlier event: threads may come in another
  // order than they looked at the clock.
  Moment Now(Cell& cell) ABSL_EXCLUSIVE_LOCKS_REQUIRED(cell.mutex);
  // Says that time has passed, and returns it on the clock that stands still while the process does not run.
  absl::Time Running();
  template <typename Function>
  auto EventOf(Cell& cell, Function function) {
    Work work;
    auto result = [&] {
      MutexLock lock(cell.mutex);
      const Moment moment = Now(cell);
      auto value = function(cell.job, moment);
      Collect(cell, work);
      return value;
    }();
    Release(std::move(work));
    return result;
  }
  grpc::ServerUnaryReactor* HoldAnswer(grpc::CallbackServerContext* context, const Caller& caller,
                                       absl::Duration max_wait, AnswerPoll poll);
  grpc::ServerUnaryReactor* AnswerOnWorker(std::function<Answer()> work, std::shared_ptr<Admission::Place> place);
  static std::optional<Answer> Ask(Cell& cell, const AnswerPoll& poll, const Moment& moment, bool last)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(cell.mutex);
  // Asks the next held calls of agents that were woken, at most so many.
  void AskWoken(Cell& cell, const Moment& moment, Work& work, size_t most) ABSL_EXCLUSIVE_LOCKS_REQUIRED(cell.mutex);
  // Says why held calls are asked. Woken ranks wait in a queue, and each turn asks some of them. An event asks none
  // while others are in the queue: those that it has woken are added at its end. A call that was answered at once asks
  // one of the queue besides. The timer also asks the held calls of people.
  enum class Occasion { kEvent, kCall, kTurn, kTimer };
  // Takes the answers of these calls, of agents' at most kAskedAtOnce, and what else the last event has brought.
  void Collect(Cell& cell, Work& work, Occasion occasion = Occasion::kEvent) ABSL_EXCLUSIVE_LOCKS_REQUIRED(cell.mutex);
  // True if the held call is answered now. The answer is in `work`.
  bool TryAnswer(Cell& cell, const Held& held, const Moment& moment, Work& work)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(cell.mutex);
  void Release(Work work);
  void OnEnd(Cell& cell, const Caller& caller, HeldCall& call, bool timer);
  void Execute(Cell& cell, const CoreAction& action);
  void RunTimer();
  // Asks what events have left to be asked, until Stop.
  void RunTurns();
  // Returns the job whose turn it is, or null after Stop. Waits for one.
  std::shared_ptr<Cell> NextTurn();
  void Tick();
  void WatchWorkers();
  // Makes the next call to itself, if one is due, and tells of long stops. Returns for how long in all the coordinator
  // was too busy to listen.
  absl::Duration WatchListening();

  const Clock& clock_;
  const DecisionOptions options_;
  Executor& executor_;
  LayoutStore& layouts_;
  OnTimeline on_timeline_;
  OnLeasesEnded on_leases_ended_;
  Admission admission_;
  WorkerPool workers_;
  // Knows which layouts are kept. While its lock is held, the bytes of every layout that counts as here are in the
  // store.
  LayoutTable kept_;
  Mutex kept_mutex_;
  Mutex mutex_;
  std::map<std::string, std::shared_ptr<Cell>> cells_ ABSL_GUARDED_BY(mutex_);  // by job
  // The jobs with held calls to be asked yet. Each comes once, and is asked kAskedAtOnce of them before the next one.
  std::deque<std::shared_ptr<Cell>> turns_ ABSL_GUARDED_BY(mutex_);
  CondVar turn_;
  std::vector<LayoutHold> from_before_ ABSL_GUARDED_BY(mutex_);
  absl::Time from_before_until_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
  std::atomic<bool> stopped_ = false;
  std::atomic<int> stalled_calls_ = 0;
  std::atomic<uint64_t> waits_refused_ = 0;
  bool threads_refused_ = false;  // the timer's
  // Holds what a call to itself needs, which may end after this object.
  struct Listening {
    Mutex mutex;
    ListeningClock clock ABSL_GUARDED_BY(mutex);
  };
  const std::shared_ptr<Listening> listening_ = std::make_shared<Listening>();
  absl::Duration stops_told_ = absl::ZeroDuration();  // the timer's: of these the log knows
  std::function<void(std::function<void()>)> probe_ ABSL_GUARDED_BY(mutex_);
  CondVar stop_;
  std::thread timer_;
  std::thread turns_thread_;
};

}  // namespace cairn

#endif  // CAIRN_COORDINATOR_SERVER_DISPATCHER_H_

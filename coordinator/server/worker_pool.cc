#include "coordinator/server/worker_pool.h"

#include <algorithm>
#include <cerrno>
#include <deque>
#include <system_error>
#include <utility>
#include <vector>

#include "common/base/mutex.h"
#include "common/resources/thread.h"

namespace cairn {
namespace {

// The pool looks this often for threads that hang, also while it stops.
constexpr absl::Duration kLook = absl::Milliseconds(50);

}  // namespace

struct WorkerPool::Worker {
  // The thread waits for storage since then.
  absl::Time since = absl::InfiniteFuture();
  bool stalled = false;
};

struct WorkerPool::State {
  State(absl::Duration stall, const Clock& time) : stall_after(stall), clock(time) {}

  const absl::Duration stall_after;
  const Clock& clock;
  Mutex mutex;
  CondVar changed;
  std::deque<std::function<void()>> submitted ABSL_GUARDED_BY(mutex);
  std::deque<std::function<void()>> offered ABSL_GUARDED_BY(mutex);
  std::vector<std::shared_ptr<Worker>> workers ABSL_GUARDED_BY(mutex);
  int stalled ABSL_GUARDED_BY(mutex) = 0;
  // Threads beyond those that the pool was made with, in the place of those that hang.
  int replacements ABSL_GUARDED_BY(mutex) = 0;
  bool stopped ABSL_GUARDED_BY(mutex) = false;

  // The queue whose first work is next.
  std::deque<std::function<void()>>& Next() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    return submitted.empty() ? offered : submitted;
  }
};

namespace {

// Marks when this thread, if it belongs to a pool, computes.
struct Current {
  std::function<void(bool computing)> mark;
  bool computing = false;
};
thread_local Current* current = nullptr;

}  // namespace

Computing::Computing() : outermost_(current != nullptr && !std::exchange(current->computing, true)) {
  if (outermost_) current->mark(true);
}

Computing::~Computing() {
  if (!outermost_) return;
  current->computing = false;
  current->mark(false);
}

WorkerPool::WorkerPool(int threads, absl::Duration stall_after, const Clock& clock)
    : state_(std::make_shared<State>(stall_after, clock)) {
  for (int i = 0; i < threads; ++i) {
    // This runs at the start of a process, which ends if it cannot have its threads.
    if (!Start(state_).ok()) throw std::system_error(EAGAIN, std::generic_category(), "a thread for storage");
  }
}

absl::Status WorkerPool::Start(const std::shared_ptr<State>& state) {
  auto worker = std::make_shared<Worker>();
  {
    MutexLock lock(state->mutex);
    state->workers.push_back(worker);
  }
  auto thread = StartThread("to work in the place of one that hangs", [state, worker] { Run(state, worker); });
  if (thread.ok()) {
    thread->detach();
    return absl::OkStatus();
  }
  MutexLock lock(state->mutex);
  std::erase(state->workers, worker);
  state->changed.NotifyAll();
  return thread.status();
}

void WorkerPool::Run(const std::shared_ptr<State>& state, const std::shared_ptr<Worker>& worker) {
  Current mine;
  mine.mark = [&](bool computing) {
    MutexLock lock(state->mutex);
    worker->since = computing ? absl::InfiniteFuture() : state->clock.SteadyNow();
  };
  current = &mine;
  for (;;) {
    std::function<void()> work;
    {
      MutexLock lock(state->mutex);
      worker->since = absl::InfiniteFuture();
      if (std::exchange(worker->stalled, false)) --state->stalled;
      // If another thread has taken the place of this one, which has come back from storage, this one ends.
      const bool spare = state->replacements > state->stalled;
      if (spare) --state->replacements;
      while (!spare && state->Next().empty() && !state->stopped) state->changed.Wait(state->mutex);
      if (spare || state->Next().empty()) {
        std::erase(state->workers, worker);
        state->changed.NotifyAll();
        return;
      }
      work = std::move(state->Next().front());
      state->Next().pop_front();
      worker->since = state->clock.SteadyNow();
    }
    work();
  }
}

void WorkerPool::Submit(std::function<void()> work) {
  MutexLock lock(state_->mutex);
  if (state_->stopped) return;
  state_->submitted.push_back(std::move(work));
  state_->changed.NotifyOne();
}

bool WorkerPool::Offer(std::function<void()> work) {
  MutexLock lock(state_->mutex);
  if (state_->submitted.size() + state_->offered.size() >= kMaxWaiting) return false;
  if (state_->stopped) return true;
  state_->offered.push_back(std::move(work));
  state_->changed.NotifyOne();
  return true;
}

int WorkerPool::ReplaceStalled(absl::Status* refused) {
  int missing = 0;
  int stalled = 0;
  {
    MutexLock lock(state_->mutex);
    const absl::Time now = state_->clock.SteadyNow();
    for (const auto& worker : state_->workers) {
      if (worker->stalled || now - worker->since < state_->stall_after) continue;
      worker->stalled = true;
      ++state_->stalled;
    }
    missing = std::min(state_->stalled, kMaxStalled) - state_->replacements;
    if (missing > 0) state_->replacements += missing;
    stalled = state_->stalled;
  }
  absl::Status started;
  for (; missing > 0 && started.ok(); --missing) started = Start(state_);
  if (!started.ok()) {
    MutexLock lock(state_->mutex);
    state_->replacements -= missing + 1;  // the next look tries again
  }
  if (refused != nullptr) *refused = std::move(started);
  return stalled;
}

bool WorkerPool::Stop(absl::Duration patience) {
  const absl::Time deadline = state_->clock.SteadyNow() + patience;
  {
    MutexLock lock(state_->mutex);
    state_->stopped = true;
    state_->changed.NotifyAll();
  }
  for (;;) {
    const int stalled = ReplaceStalled();
    MutexLock lock(state_->mutex);
    if (state_->workers.empty()) return true;
    if (static_cast<int>(state_->workers.size()) <= stalled) return false;
    if (state_->clock.SteadyNow() >= deadline) return false;
    state_->changed.WaitFor(state_->mutex, kLook);
  }
}

}  // namespace cairn

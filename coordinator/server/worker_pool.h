// Runs everything that may block on threads of its own: planning, storage, manifests.
#ifndef CAIRN_COORDINATOR_SERVER_WORKER_POOL_H_
#define CAIRN_COORDINATOR_SERVER_WORKER_POOL_H_

#include <cstddef>
#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/base/clock.h"

namespace cairn {

// A storage call that hangs cannot be ended. So its thread is given up, another one takes its place, and the work of
// other jobs goes on. (TaskQueue joins its threads, which must not hang, and drops its work at the end.) What the pool
// itself needs outlives a thread that was given up; what the work uses must outlive it too. Thread-safe.
class WorkerPool {
 public:
  // At most this many threads may hang at a time. If one more hangs, no work runs until one of them comes back.
  static constexpr int kMaxStalled = 64;
  // Offer refuses more work than this to wait.
  static constexpr size_t kMaxWaiting = 4096;

  // A thread that waits for storage longer than `stall_after` counts as hanging. `clock` must outlive the threads.
  // Throws std::system_error if the system refuses so many threads.
  WorkerPool(int threads, absl::Duration stall_after, const Clock& clock);
  ~WorkerPool() { Stop(absl::InfiniteDuration()); }

  // Does nothing after Stop.
  void Submit(std::function<void()> work);
  // Does the same for work that others can ask for without end, which begins after all that was submitted. Returns
  // false if too much of it waits.
  bool Offer(std::function<void()> work);

  // Puts a new thread in the place of each that hangs. The owner calls it every few hundred milliseconds. Returns how
  // many hang now. `refused` gets the error if the system refused a thread; the next call tries again.
  int ReplaceStalled(absl::Status* refused = nullptr);

  // Finishes the submitted work, for at most `patience`, and leaves out the work that waits for threads that hang.
  // Returns whether all threads have ended. If not, what their work uses must never be destroyed. May be called again.
  bool Stop(absl::Duration patience);

 private:
  struct State;
  struct Worker;
  static absl::Status Start(const std::shared_ptr<State>& state);
  static void Run(const std::shared_ptr<State>& state, const std::shared_ptr<Worker>& worker);

  const std::shared_ptr<State> state_;
};

// While such an object lives, this thread computes, so its time does not count as waiting for storage. It does nothing
// outside of a pool's threads.
class Computing {
 public:
  Computing();
  ~Computing();
  Computing(const Computing&) = delete;
  Computing& operator=(const Computing&) = delete;

 private:
  const bool outermost_;
};

}  // namespace cairn

#endif  // CAIRN_COORDINATOR_SERVER_WORKER_POOL_H_

#include "common/resources/spare_threads.h"

#include <utility>

#include "common/resources/thread.h"

namespace cairn {
namespace {

// A thread without work ends after so long. The last one stays, for a time when the system refuses new ones.
constexpr absl::Duration kIdle = absl::Seconds(10);

}  // namespace

SpareThreads& SpareThreads::OfProcess() {
  static auto& threads = *new SpareThreads;  // its threads may outlive main
  return threads;
}

absl::Status SpareThreads::Run(std::function<void()> work) {
  MutexLock lock(mutex_);
  waiting_.push_back(std::move(work));
  if (idle_ >= static_cast<int>(waiting_.size()) || threads_ == kMost) {
    changed_.NotifyOne();
    return absl::OkStatus();
  }
  auto thread = StartThread("for work in the background", [this] { Work(); });
  if (thread.ok()) {
    thread->detach();
    ++threads_;
  } else if (threads_ == 0) {
    waiting_.pop_back();
    return thread.status();
  }
  return absl::OkStatus();
}

void SpareThreads::Work() {
  while (true) {
    std::function<void()> work;
    {
      MutexLock lock(mutex_);
      ++idle_;
      while (waiting_.empty()) {
        const bool waited = !changed_.WaitFor(mutex_, kIdle);
        if (waited && waiting_.empty() && threads_ > 1) {
          --idle_;
          --threads_;
          return;
        }
      }
      --idle_;
      work = std::move(waiting_.front());
      waiting_.pop_front();
    }
    work();
  }
}

}  // namespace cairn

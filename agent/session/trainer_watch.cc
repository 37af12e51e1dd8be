#include "agent/session/trainer_watch.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <utility>
#include <vector>

namespace cairn {
namespace {

constexpr size_t kMaxWatched = 16;

}  // namespace

TrainerWatch::TrainerWatch(std::function<void(uint64_t)> on_end)
    : on_end_(std::move(on_end)), wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)), thread_([this] { Run(); }) {}

TrainerWatch::~TrainerWatch() {
  {
    MutexLock lock(mutex_);
    stopped_ = true;
  }
  Wake();
  thread_.join();
}

void TrainerWatch::Wake() {
  const uint64_t one = 1;
  (void)!write(wake_.get(), &one, sizeof(one));
}

bool TrainerWatch::Watch(uint64_t incarnation, pid_t pid) {
  UniqueFd process(pid > 0 ? static_cast<int>(syscall(SYS_pidfd_open, pid, 0)) : -1);
  const bool watched = process.valid();
  {
    MutexLock lock(mutex_);
    std::erase_if(watched_, [&](const Watched& one) { return one.incarnation == incarnation; });
    if (watched) watched_.push_back({incarnation, std::make_shared<const UniqueFd>(std::move(process))});
    if (watched_.size() > kMaxWatched) watched_.pop_front();
  }
  Wake();
  return watched;
}

void TrainerWatch::Forget(uint64_t incarnation) {
  {
    MutexLock lock(mutex_);
    std::erase_if(watched_, [&](const Watched& one) { return one.incarnation == incarnation; });
  }
  Wake();
}

void TrainerWatch::Run() {
  while (true) {
    std::deque<Watched> watched;  // keeps them open while they are polled
    {
      MutexLock lock(mutex_);
      if (stopped_) return;
      watched = watched_;
    }
    std::vector<pollfd> polled = {{wake_.get(), POLLIN, 0}};
    for (const Watched& one : watched) polled.push_back({one.process->get(), POLLIN, 0});
    if (poll(polled.data(), polled.size(), -1) < 0) continue;
    if (polled[0].revents != 0) {
      uint64_t count = 0;
      (void)!read(wake_.get(), &count, sizeof(count));
    }
    for (size_t i = 0; i < watched.size(); ++i) {
      if ((polled[i + 1].revents & POLLIN) == 0) continue;
      bool still = false;
      {
        MutexLock lock(mutex_);
        still =
            std::erase_if(watched_, [&](const Watched& one) { return one.incarnation == watched[i].incarnation; }) > 0;
      }
      if (still) on_end_(watched[i].incarnation);
    }
  }
}

}  // namespace cairn

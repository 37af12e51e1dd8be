#include "agent/local/trainer_watch.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <utility>

namespace cairn {

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
    incarnation_ = incarnation;
    process_ = std::move(process);
  }
  Wake();
  return watched;
}

void TrainerWatch::Clear() {
  {
    MutexLock lock(mutex_);
    incarnation_ = 0;
    process_ = UniqueFd();
  }
  Wake();
}

void TrainerWatch::Run() {
  while (true) {
    UniqueFd process;  // a copy, so that the watched one may be replaced meanwhile
    uint64_t incarnation = 0;
    {
      MutexLock lock(mutex_);
      if (stopped_) return;
      incarnation = incarnation_;
      if (process_.valid()) process = UniqueFd(dup(process_.get()));
    }
    pollfd polled[] = {{wake_.get(), POLLIN, 0}, {process.get(), POLLIN, 0}};
    if (poll(polled, process.valid() ? 2 : 1, -1) < 0) continue;
    if (polled[0].revents != 0) {
      uint64_t count = 0;
      (void)!read(wake_.get(), &count, sizeof(count));
      continue;
    }
    if (!process.valid() || polled[1].revents == 0) continue;
    {
      MutexLock lock(mutex_);
      if (incarnation_ != incarnation) continue;
      incarnation_ = 0;
      process_ = UniqueFd();
    }
    on_end_(incarnation);
  }
}

}  // namespace cairn

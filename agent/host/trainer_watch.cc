#include "agent/host/trainer_watch.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <utility>
#include <vector>

namespace cairn {
namespace {

constexpr size_t kMaxWatched = 16;

}  // namespace

TrainerWatch::TrainerWatch(std::function<void(uint64_t, TrainerEnd)> on_end)
    : on_end_(std::move(on_end)), wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (works()) thread_ = std::thread([this] { Run(); });
}

TrainerWatch::~TrainerWatch() {
  {
    MutexLock lock(mutex_);
    stopped_ = true;
  }
  Wake();
  if (thread_.joinable()) thread_.join();
}

void TrainerWatch::Wake() {
  const uint64_t one = 1;
  (void)!write(wake_.get(), &one, sizeof(one));
}

void TrainerWatch::WatchProcess(uint64_t incarnation, std::shared_ptr<const UniqueFd> process) {
  Add({incarnation, std::move(process), TrainerEnd::kEnded});
}

void TrainerWatch::WatchConnection(uint64_t incarnation, std::shared_ptr<const UniqueFd> connection) {
  Add({incarnation, std::move(connection), TrainerEnd::kDetached});
}

void TrainerWatch::Add(Watched watched) {
  {
    MutexLock lock(mutex_);
    std::erase_if(watched_, [&](const Watched& one) { return one.incarnation == watched.incarnation; });
    watched_.push_back(std::move(watched));
    if (watched_.size() > kMaxWatched) watched_.pop_front();
  }
  Wake();
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
    // Others read what a trainer sends. Only the end of a connection counts here, and poll always tells it.
    for (const Watched& one : watched) {
      polled.push_back({one.fd->get(), static_cast<short>(one.end == TrainerEnd::kEnded ? POLLIN : 0), 0});
    }
    if (poll(polled.data(), polled.size(), -1) < 0) continue;
    if (polled[0].revents != 0) {
      uint64_t count = 0;
      (void)!read(wake_.get(), &count, sizeof(count));
    }
    for (size_t i = 0; i < watched.size(); ++i) {
      if (polled[i + 1].revents == 0) continue;
      bool still = false;
      {
        MutexLock lock(mutex_);
        still = std::erase_if(watched_, [&](const Watched& one) { return one.fd == watched[i].fd; }) > 0;
      }
      if (still) on_end_(watched[i].incarnation, watched[i].end);
    }
  }
}

}  // namespace cairn

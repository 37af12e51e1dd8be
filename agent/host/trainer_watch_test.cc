#include "agent/host/trainer_watch.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace cairn {
namespace {

// What a watch has told, in order.
class Ends {
 public:
  std::function<void(uint64_t, TrainerEnd)> Taker() {
    return [this](uint64_t incarnation, TrainerEnd end) {
      MutexLock lock(mutex_);
      told_.emplace_back(incarnation, end);
      changed_.NotifyAll();
    };
  }
  std::vector<std::pair<uint64_t, TrainerEnd>> Await(size_t count) {
    MutexLock lock(mutex_);
    const absl::Time until = absl::Now() + absl::Seconds(20);
    while (told_.size() < count && absl::Now() < until) changed_.WaitFor(mutex_, until - absl::Now());
    return told_;
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  std::vector<std::pair<uint64_t, TrainerEnd>> told_ ABSL_GUARDED_BY(mutex_);
};

// A process that lives until it is killed.
class Process {
 public:
  Process() : id_(fork()) {
    if (id_ == 0) {
      while (true) pause();
    }
    watched_ = std::make_shared<const UniqueFd>(static_cast<int>(syscall(SYS_pidfd_open, id_, 0)));
  }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;
  ~Process() { Kill(); }
  void Kill() {
    if (id_ <= 0) return;
    kill(id_, SIGKILL);
    waitpid(id_, nullptr, 0);
    id_ = -1;
  }
  const std::shared_ptr<const UniqueFd>& descriptor() const { return watched_; }

 private:
  pid_t id_;
  std::shared_ptr<const UniqueFd> watched_;
};

TEST(TrainerWatchTest, Process_IsKilled_IsToldAsEnded) {
  Process one, other;
  if (!one.descriptor()->valid()) GTEST_SKIP() << "the system has no pidfd";
  Ends ends;
  TrainerWatch watch(ends.Taker());
  watch.WatchProcess(7, one.descriptor());
  watch.WatchProcess(8, other.descriptor());
  other.Kill();
  EXPECT_EQ(ends.Await(1), (std::vector<std::pair<uint64_t, TrainerEnd>>{{8, TrainerEnd::kEnded}}));
  one.Kill();
  EXPECT_EQ(ends.Await(2).back(), (std::pair<uint64_t, TrainerEnd>{7, TrainerEnd::kEnded}));
}

TEST(TrainerWatchTest, Connection_IsClosed_IsToldAsDetached) {
  int sockets[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets), 0);
  Ends ends;
  TrainerWatch watch(ends.Taker());
  watch.WatchConnection(7, std::make_shared<const UniqueFd>(sockets[0]));
  ASSERT_EQ(write(sockets[1], "x", 1), 1);  // is for others
  close(sockets[1]);
  EXPECT_EQ(ends.Await(1), (std::vector<std::pair<uint64_t, TrainerEnd>>{{7, TrainerEnd::kDetached}}));
}

TEST(TrainerWatchTest, ForgottenProcess_IsKilled_IsNotTold) {
  Process forgotten, watched;
  if (!watched.descriptor()->valid()) GTEST_SKIP() << "the system has no pidfd";
  Ends ends;
  TrainerWatch watch(ends.Taker());
  watch.WatchProcess(7, forgotten.descriptor());
  watch.WatchProcess(8, watched.descriptor());
  watch.Forget(7);
  forgotten.Kill();
  watched.Kill();
  EXPECT_EQ(ends.Await(1), (std::vector<std::pair<uint64_t, TrainerEnd>>{{8, TrainerEnd::kEnded}}));
}

TEST(TrainerWatchTest, NoDescriptorLeft_DoesNotWorkAndEndsAllTheSame) {
  Process process;
  Ends ends;
  rlimit before = {};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none = {0, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  {
    TrainerWatch watch(ends.Taker());
    EXPECT_FALSE(watch.works());
    watch.WatchProcess(7, process.descriptor());
    watch.Forget(7);
  }
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
}

}  // namespace
}  // namespace cairn

#include "agent/sockets/process_status.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>

namespace cairn {
namespace {

// A process that waits until it is killed.
class Child {
 public:
  Child() : pid_(fork()) {
    if (pid_ == 0) {
      while (true) pause();
    }
    process_ = UniqueFd(static_cast<int>(syscall(SYS_pidfd_open, pid_, 0)));
  }
  ~Child() {
    if (pid_ != 0) End();
  }
  // Returns when the process is stopped, or continues.
  void Signal(int signal, int until) {
    kill(pid_, signal);
    int status = 0;
    waitpid(pid_, &status, until);
  }
  void End() {
    kill(pid_, SIGKILL);
    waitpid(std::exchange(pid_, 0), nullptr, 0);
  }
  pid_t pid() const { return pid_; }
  const UniqueFd& process() const { return process_; }

 private:
  pid_t pid_;
  UniqueFd process_;
};

std::string Status(std::string_view state, int voluntary, int involuntary) {
  return "Name:\ttrainer\nUmask:\t0022\nState:\t" + std::string(state) + "\nTgid:\t7\nvoluntary_ctxt_switches:\t" +
         std::to_string(voluntary) + "\nnonvoluntary_ctxt_switches:\t" + std::to_string(involuntary) + "\n";
}

v1::JobRank::TrainerProcess Standing(const std::string& now, const std::string& before = "") {
  return StandingOf(*ParseProcessStatus(now), ParseProcessStatus(before));
}

TEST(ProcessStatusTest, Parse_TextsOfTheKernel_GivesStateAndAllSwitches) {
  const auto look = ParseProcessStatus(Status("D (disk sleep)", 12, 30));
  ASSERT_TRUE(look.has_value());
  EXPECT_EQ(look->state, 'D');
  EXPECT_EQ(look->switches, 42u);
  EXPECT_FALSE(ParseProcessStatus("").has_value());
  EXPECT_FALSE(ParseProcessStatus("Name:\tState\nState:\n").has_value());
  EXPECT_FALSE(ParseProcessStatus("Name:\tState: T\n").has_value()) << "a process may have any name";
}

TEST(ProcessStatusTest, StandingOf_EveryState_IsWhatCanBeExpectedOfIt) {
  for (const char* state : {"R (running)", "S (sleeping)", "I (idle)", "D (disk sleep)"}) {
    EXPECT_EQ(Standing(Status(state, 1, 1)), v1::JobRank::RUNNING) << state;
  }
  EXPECT_EQ(Standing(Status("T (stopped)", 1, 1)), v1::JobRank::STOPPED);
  EXPECT_EQ(Standing(Status("t (tracing stop)", 1, 1)), v1::JobRank::STOPPED);
  EXPECT_EQ(Standing(Status("Z (zombie)", 1, 1)), v1::JobRank::GONE);
  EXPECT_EQ(Standing(Status("X (dead)", 1, 1)), v1::JobRank::GONE);
}

TEST(ProcessStatusTest, StandingOf_WaitsInTheKernelTwice_CountsOnlyIfItHasNotMoved) {
  const std::string waits = Status("D (disk sleep)", 5, 1);
  EXPECT_EQ(Standing(waits, waits), v1::JobRank::UNINTERRUPTIBLE);
  EXPECT_EQ(Standing(waits, Status("D (disk sleep)", 4, 1)), v1::JobRank::RUNNING)
      << "it reads one block after another";
  EXPECT_EQ(Standing(waits, Status("R (running)", 5, 1)), v1::JobRank::RUNNING);
}

TEST(ProcessStatusTest, Look_ProcessIsStoppedGoesOnAndEnds_SaysSoEachTime) {
  Child child;
  const auto status = ProcessStatus::Open(child.pid(), child.process());
  ASSERT_NE(status, nullptr);
  EXPECT_EQ(status->Look(), v1::JobRank::RUNNING);
  child.Signal(SIGSTOP, WUNTRACED);
  EXPECT_EQ(status->Look(), v1::JobRank::STOPPED);
  child.Signal(SIGCONT, WCONTINUED);
  EXPECT_EQ(status->Look(), v1::JobRank::RUNNING);
  child.End();
  EXPECT_EQ(status->Look(), v1::JobRank::GONE);
}

TEST(ProcessStatusTest, Open_ProcessThatHasEndedOrIsNotSeen_GivesNothing) {
  Child child;
  const pid_t pid = child.pid();
  EXPECT_EQ(ProcessStatus::Open(0, child.process()), nullptr);
  EXPECT_EQ(ProcessStatus::Open(pid, UniqueFd()), nullptr);
  child.End();
  EXPECT_EQ(ProcessStatus::Open(pid, child.process()), nullptr);
  // Another process may have got the number of the one that has ended.
  EXPECT_EQ(ProcessStatus::Open(getpid(), child.process()), nullptr);
}

}  // namespace
}  // namespace cairn

#include "cli/child_process.h"

#include <gtest/gtest.h>

#include <csignal>

#include "common/rpc/reason.h"

namespace cairn::cli {
namespace {

std::string Log(const std::string& name) { return testing::TempDir() + "/" + name + ".log"; }

TEST(ChildProcessTest, EndsAreTold) {
  auto good = ChildProcess::Start({"/bin/sh", "-c", "exit 3"}, Log("exit"));
  ASSERT_TRUE(good.ok());
  EXPECT_TRUE(good->Wait(absl::Seconds(10)));
  EXPECT_EQ(good->Ended(), "exit status 3");
  auto killed = ChildProcess::Start({"/bin/sh", "-c", "sleep 100"}, Log("killed"));
  killed->Signal(SIGKILL);
  EXPECT_TRUE(killed->Wait(absl::Seconds(10)));
  EXPECT_EQ(killed->Ended(), "signal 9");
}

TEST(ChildProcessTest, GoesWithItsObject) {
  pid_t pid;
  {
    auto child = ChildProcess::Start({"/bin/sleep", "100"}, Log("gone"));
    pid = child->pid();
    EXPECT_EQ(::kill(pid, 0), 0);
  }
  EXPECT_NE(::kill(pid, 0), 0);
}

TEST(AwaitAddressTest, EarlyEnd_ShowsTheLog) {
  auto child = ChildProcess::Start({"/bin/sh", "-c", "echo no such root >&2; exit 1"}, Log("early"));
  const auto address = AwaitAddress(*child, Log("never"), true, absl::Seconds(10));
  EXPECT_TRUE(HasReason(address.status(), Reason::kCoordinatorUnreachable));
  EXPECT_NE(std::string(address.status().message()).find("no such root"), std::string::npos);
}

TEST(AwaitAddressTest, Address_IsTheFirstLine) {
  const std::string path = testing::TempDir() + "/address";
  auto child = ChildProcess::Start(
      {"/bin/sh", "-c", "echo 127.0.0.1:7 > " + path + ".tmp && mv " + path + ".tmp " + path + "; sleep 100"},
      Log("address"));
  EXPECT_EQ(*AwaitAddress(*child, path, false, absl::Seconds(10)), "127.0.0.1:7");
}

}  // namespace
}  // namespace cairn::cli

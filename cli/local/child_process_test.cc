#include "cli/local/child_process.h"

#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>

#include "common/base/random_id.h"
#include "common/status/reason.h"

namespace cairn::cli {
namespace {

const ChildName kCoordinator = {"the coordinator", Reason::kCoordinatorUnreachable};

std::string Log(const std::string& name) { return testing::TempDir() + "/" + name + ".log"; }

TEST(ChildProcessTest, Ended_ChildHasEnded_TellsHow) {
  auto good = ChildProcess::Start({"/bin/sh", "-c", "exit 3"}, Log("exit"));
  ASSERT_TRUE(good.ok());
  EXPECT_TRUE(good->Wait(absl::Seconds(10)));
  EXPECT_EQ(good->Ended(), "exit status 3");
  auto killed = ChildProcess::Start({"/bin/sh", "-c", "sleep 100"}, Log("killed"));
  killed->Signal(SIGKILL);
  EXPECT_TRUE(killed->Wait(absl::Seconds(10)));
  EXPECT_EQ(killed->Ended(), "signal 9");
}

TEST(ChildProcessTest, Destructor_ChildRuns_IsKilled) {
  pid_t pid;
  {
    auto child = ChildProcess::Start({"/bin/sleep", "100"}, Log("gone"));
    pid = child->pid();
    EXPECT_EQ(::kill(pid, 0), 0);
  }
  EXPECT_NE(::kill(pid, 0), 0);
}

TEST(ChildProcessTest, Start_Environment_StandsInPlaceOfWhatHadTheName) {
  setenv("CAIRN_TEST_REPLACED", "old", 1);
  setenv("CAIRN_TEST_REPLACED_NOT", "kept", 1);
  const std::string log = Log("environment-" + RandomToken(6));
  auto child = ChildProcess::Start({"/bin/sh", "-c", "env | grep ^CAIRN_TEST_ | sort"}, log,
                                   {"CAIRN_TEST_REPLACED=new", "CAIRN_TEST_ADDED="});
  ASSERT_TRUE(child.ok() && child->Wait(absl::Seconds(10)));
  std::ifstream file(log);
  EXPECT_EQ(std::string((std::istreambuf_iterator<char>(file)), {}),
            "CAIRN_TEST_ADDED=\nCAIRN_TEST_REPLACED=new\nCAIRN_TEST_REPLACED_NOT=kept\n");
}

TEST(AwaitAddressTest, AwaitAddress_ChildWithoutALog_PrintsWhatItHasToSay) {
  testing::internal::CaptureStderr();
  auto child = ChildProcess::Start({"/bin/sh", "-c", "echo no such root; exit 1"}, "");
  ASSERT_TRUE(child.ok()) << child.status();
  const auto address = AwaitAddress(*child, Log("never"), kCoordinator, absl::Seconds(10));
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "no such root\n");
  EXPECT_TRUE(HasReason(address.status(), Reason::kCoordinatorUnreachable));
  EXPECT_EQ(address.status().message(), "the coordinator ended with exit status 1");
  EXPECT_EQ(MetadataOf(address.status())["next"], "Read what it has printed before this.");
}

TEST(AwaitAddressTest, AwaitAddress_EarlyEnd_ShowsTheLog) {
  auto child = ChildProcess::Start({"/bin/sh", "-c", "echo no such root >&2; exit 1"}, Log("early"));
  const auto address = AwaitAddress(*child, Log("never"), kCoordinator, absl::Seconds(10));
  EXPECT_TRUE(HasReason(address.status(), Reason::kCoordinatorUnreachable));
  EXPECT_EQ(address.status().message(), "the coordinator ended with exit status 1; the end of its log: no such root");
}

TEST(AwaitAddressTest, AwaitAddress_EarlyEnd_IsTheChildsOwnError) {
  const std::string script =
      "echo error: BAD_STEP: not the last; echo 'error: ROOT_IN_USE: pid 7 serves it: here'; echo '  next: Stop it.'; "
      "exit 1";
  auto child = ChildProcess::Start({"/bin/sh", "-c", script}, Log("own"));
  const auto address = AwaitAddress(*child, Log("never"), kCoordinator, absl::Seconds(10));
  EXPECT_TRUE(HasReason(address.status(), Reason::kRootInUse)) << address.status();
  EXPECT_EQ(address.status().message(),
            "the coordinator ended with exit status 1: pid 7 serves it: here; its log is " + Log("own"));
  EXPECT_EQ(MetadataOf(address.status())["log"], Log("own"));
}

TEST(ReapOrphansTest, ReapOrphans_OfAProcessThatIsGone_LeavesNoZombie) {
  ASSERT_EQ(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
  auto own = ChildProcess::Start({"/bin/sh", "-c", "sleep 0 & exit 4"}, Log("parent"));
  // The orphan may end before or after the shell.
  siginfo_t ended = {};
  ASSERT_EQ(waitid(P_PID, static_cast<id_t>(own->pid()), &ended, WEXITED | WNOWAIT), 0);
  ReapOrphans([&](pid_t pid) { return pid == own->pid(); });
  EXPECT_EQ(own->Ended(), "exit status 4") << "its owner is told";
  // If the orphan still runs, this waits for its end.
  waitid(P_ALL, 0, &ended, WEXITED | WNOWAIT);
  ReapOrphans([](pid_t) { return false; });
  EXPECT_EQ(waitid(P_ALL, 0, &ended, WEXITED | WNOHANG | WNOWAIT), -1);
  EXPECT_EQ(errno, ECHILD) << "no child is left";
  prctl(PR_SET_CHILD_SUBREAPER, 0);
}

TEST(ErrorOfTest, ErrorOf_WithoutAnErrorOfItsOwn_TheEndOfALongLogIsTold) {
  const std::string script = "seq 100000; echo error: NOT_A_REASON: what; echo last words; kill -9 $$";
  auto child = ChildProcess::Start({"/bin/sh", "-c", script}, Log("long"));
  ASSERT_TRUE(child->Wait(absl::Seconds(30)));
  const absl::Status error = ErrorOf(*child, {"the agent of rank 2", Reason::kAgentUnreachable}, *child->Ended());
  EXPECT_TRUE(HasReason(error, Reason::kAgentUnreachable));
  EXPECT_TRUE(std::string(error.message()).starts_with("the agent of rank 2 ended with signal 9; ")) << error;
  EXPECT_TRUE(std::string(error.message()).ends_with("\nerror: NOT_A_REASON: what\nlast words")) << error;
  EXPECT_NE(NextActionOf(error).find(Log("long")), std::string::npos) << NextActionOf(error);
}

TEST(AwaitAddressTest, AwaitAddress_ChildIsReady_IsTheFirstLine) {
  const std::string path = testing::TempDir() + "/address";
  auto child = ChildProcess::Start(
      {"/bin/sh", "-c", "echo 127.0.0.1:7 > " + path + ".tmp && mv " + path + ".tmp " + path + "; sleep 100"},
      Log("address"));
  EXPECT_EQ(*AwaitAddress(*child, path, kCoordinator, absl::Seconds(10)), "127.0.0.1:7");
}

}  // namespace
}  // namespace cairn::cli

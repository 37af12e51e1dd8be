#include "cli/local/foreground_process.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

namespace cairn::cli {
namespace {

// Waits for the end of the program, or of the test.
int StatusOf(ForegroundProcess& process) {
  std::optional<int> status;
  while (!status.has_value()) status = process.Follow(absl::Seconds(10));
  return *status;
}

int StatusOf(const std::vector<std::string>& command,
             const std::vector<std::pair<std::string, std::string>>& variables = {}) {
  auto process = ForegroundProcess::Start(command, variables);
  return process.ok() ? StatusOf(*process) : -1;
}

TEST(ForegroundProcessTest, ExitStatus_IsHandedOn) {
  EXPECT_EQ(StatusOf({"true"}), 0);
  EXPECT_EQ(StatusOf({"sh", "-c", "exit 42"}), 42);
  EXPECT_EQ(StatusOf({"sh", "-c", "kill -KILL $$"}), 128 + SIGKILL);
}

TEST(ForegroundProcessTest, Start_NoSuchProgram_IsAnError) {
  EXPECT_FALSE(ForegroundProcess::Start({"/no/such/program"}, {}).ok());
  sigset_t now;
  sigprocmask(SIG_SETMASK, nullptr, &now);
  EXPECT_EQ(sigismember(&now, SIGTERM), 0) << "this process has its signals back";
}

TEST(FindProgramTest, FindProgram_AnyName_AgreesWithTheStart) {
  const std::string directory = absl::StrCat(testing::TempDir(), "/programs");
  std::filesystem::create_directories(directory + "/directory");
  std::ofstream(directory + "/script") << "#!/bin/sh\nexit 0\n";
  std::ofstream(directory + "/text") << "exit 0\n";
  std::filesystem::permissions(directory + "/script", std::filesystem::perms::owner_all);
  const std::string before = std::getenv("PATH");
  setenv("PATH", absl::StrCat(directory, ":", before).c_str(), 1);
  for (const std::string& name : {std::string("script"), directory + "/script", std::string("true")}) {
    EXPECT_TRUE(FindProgram(name).ok()) << name;
    EXPECT_EQ(StatusOf({name}), 0) << name;
  }
  for (const std::string& name : {std::string("text"), std::string("directory"), directory + "/text", directory,
                                  std::string("absent"), directory + "/absent", std::string("")}) {
    EXPECT_EQ(FindProgram(name), ForegroundProcess::Start({name}, {}).status()) << name;
    EXPECT_FALSE(FindProgram(name).ok()) << name;
  }
  setenv("PATH", before.c_str(), 1);
}

TEST(ForegroundProcessTest, Environment_HasTheVariablesInPlaceOfOthers) {
  setenv("CAIRN_TEST_VARIABLE", "before", 1);
  EXPECT_EQ(StatusOf({"sh", "-c", "test \"$CAIRN_TEST_VARIABLE\" = now && test -n \"$PATH\""},
                     {{"CAIRN_TEST_VARIABLE", "now"}}),
            0);
}

TEST(ForegroundProcessTest, Signals_AreHandedOn) {
  for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2}) {
    const std::string ready = testing::TempDir() + "/ready";
    std::filesystem::remove(ready);
    const std::string script =
        absl::StrCat("trap 'exit 7' ", signal, "; : > ", ready, "; while :; do sleep 0.01; done");
    auto process = ForegroundProcess::Start({"sh", "-c", script}, {});
    ASSERT_TRUE(process.ok()) << process.status();
    while (!std::filesystem::exists(ready)) process->Follow(absl::Milliseconds(10));
    kill(getpid(), signal);
    EXPECT_EQ(StatusOf(*process), 7) << signal;
    EXPECT_FALSE(process->Interrupted());
  }
}

TEST(ForegroundProcessTest, Interrupted_SignalAfterTheEnd_IsTold) {
  auto process = ForegroundProcess::Start({"true"}, {});
  ASSERT_TRUE(process.ok()) << process.status();
  EXPECT_EQ(StatusOf(*process), 0);
  EXPECT_FALSE(process->Interrupted());
  kill(getpid(), SIGTERM);
  EXPECT_TRUE(process->Interrupted());
}

}  // namespace
}  // namespace cairn::cli

#include "cli/local/join_advice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

namespace cairn::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

RootHolder Here(const std::string& address) {
  char name[128] = {};
  EXPECT_EQ(gethostname(name, sizeof(name) - 1), 0);
  return {"process 7", name, address};
}

TEST(JoinAdviceTest, HowToJoin_ACoordinatorHere_IsTheWholeCommand) {
  EXPECT_THAT(HowToJoin(Here("127.0.0.1:4711"), {"/opt/bin/cairn", "run", "--root", "/my ckpt", "--job", "b", "--",
                                                 "torchrun", "run", "a b.py"}),
              HasSubstr("cairn run --no-coordinator --coordinator 127.0.0.1:4711 --root '/my ckpt' --job b -- torchrun "
                        "run 'a b.py' ("));
  EXPECT_THAT(HowToJoin(Here("127.0.0.1:4711"), {"cairn", "--format", "json", "up", "--ranks", "2", "--root", "/c"}),
              HasSubstr("cairn --format json up --no-coordinator --coordinator 127.0.0.1:4711 --ranks 2 --root /c ("));
}

TEST(JoinAdviceTest, HowToJoin_TheCommandNamesACoordinator_ItIsReplaced) {
  const RootHolder other = {"process 7", "elsewhere", "node1:7420"};
  const std::string expected =
      "cairn run --no-coordinator --coordinator node1:7420 --nodes 2 -- train --coordinator x (";
  EXPECT_THAT(HowToJoin(other, {"cairn", "run", "--coordinator", "node2:7420", "--nodes", "2", "--", "train",
                                "--coordinator", "x"}),
              HasSubstr(expected));
  EXPECT_THAT(HowToJoin(other, {"cairn", "--coordinator=node2:7420", "run", "--nodes", "2", "--", "train",
                                "--coordinator", "x"}),
              HasSubstr(expected));
}

TEST(JoinAdviceTest, HowToJoin_ACoordinatorOnLoopbackOfAnotherMachine_IsNotAdvised) {
  const std::string said = HowToJoin({"process 7", "elsewhere", "127.0.0.1:4711"}, {"cairn", "run", "--", "train"});
  EXPECT_THAT(said, HasSubstr("serves elsewhere only"));
  EXPECT_THAT(said, Not(HasSubstr("--no-coordinator")));
}

TEST(JoinAdviceTest, HowToJoin_ALongCommand_NamesTheOptionsAlone) {
  const std::string said = HowToJoin(Here("127.0.0.1:4711"), {"cairn", "run", "--", "train", std::string(2000, 'x')});
  EXPECT_THAT(said, HasSubstr("the same command with --no-coordinator --coordinator 127.0.0.1:4711"));
  EXPECT_LT(said.size(), 500u);
}

}  // namespace
}  // namespace cairn::cli

#include "cli/local/launcher_ranks.h"

#include <gtest/gtest.h>

#include "common/status/reason.h"

namespace cairn::cli {
namespace {

TEST(LauncherRanksTest, Torchrun_WhateverTheSpelling_SaysItsRanks) {
  EXPECT_EQ(*RanksOfLauncher({"torchrun", "--nproc-per-node", "4", "train.py"}), 4);
  EXPECT_EQ(*RanksOfLauncher({"/opt/bin/torchrun", "--standalone", "--nproc_per_node=8", "train.py"}), 8);
  EXPECT_EQ(*RanksOfLauncher({"python", "-m", "torch.distributed.run", "--nproc-per-node=2", "-m", "train"}), 2);
}

TEST(LauncherRanksTest, OtherCommands_HaveOneRank) {
  EXPECT_EQ(*RanksOfLauncher({"python", "train.py", "--nproc-per-node=4"}), 1);
  EXPECT_EQ(*RanksOfLauncher({"torchrun", "train.py", "--nproc-per-node=4"}), 1) << "it is the script's own";
  EXPECT_EQ(*RanksOfLauncher({"torchrun", "train.py"}), 1);
}

TEST(LauncherRanksTest, Torchrun_CountsDevices_NeedsTheNumber) {
  for (const char* value : {"gpu", "auto", "0", ""}) {
    const absl::Status refused = RanksOfLauncher({"torchrun", std::string("--nproc-per-node=") + value}).status();
    EXPECT_TRUE(HasReason(refused, Reason::kBadRequest)) << value << ": " << refused;
  }
}

TEST(LauncherRanksTest, MeetsByOwnName_OnlyADynamicRendezvousWithoutAnAddress_Does) {
  EXPECT_TRUE(MeetsByOwnName({"torchrun", "--standalone", "--nproc-per-node=2", "train.py"}));
  EXPECT_TRUE(MeetsByOwnName({"python", "-m", "torch.distributed.run", "--rdzv_backend=c10d", "train.py"}));
  EXPECT_FALSE(MeetsByOwnName({"torchrun", "--standalone", "--local-addr=127.0.0.1", "train.py"}));
  EXPECT_FALSE(MeetsByOwnName({"torchrun", "--standalone", "--local_addr", "127.0.0.1", "train.py"}));
  EXPECT_FALSE(MeetsByOwnName({"torchrun", "--nproc-per-node=2", "train.py", "--standalone"}));
  EXPECT_FALSE(MeetsByOwnName({"python", "train.py", "--standalone"}));
}

}  // namespace
}  // namespace cairn::cli

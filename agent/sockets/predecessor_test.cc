#include "agent/sockets/predecessor.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "common/status/reason.h"

namespace cairn {
namespace {

using Incarnations = std::vector<uint64_t>;

class PredecessorTest : public testing::Test {
 protected:
  PredecessorTest() {
    std::string pattern = testing::TempDir() + "/predecessor-XXXXXX";
    directory_ = mkdtemp(pattern.data());
    place_ = {directory_, "boot"};
  }
  ~PredecessorTest() override { std::filesystem::remove_all(directory_); }

  std::string directory_;
  AgentPlace place_;
};

TEST_F(PredecessorTest, PredecessorsIn_AfterEachRegistration_AreThoseThatWereLeft) {
  EXPECT_EQ(PredecessorsIn(place_), Incarnations());
  for (const Incarnations& incarnations : {Incarnations{7}, {7, UINT64_MAX}, {9}}) {
    ASSERT_TRUE(LeaveToSuccessor(place_, incarnations).ok());
    EXPECT_EQ(PredecessorsIn(place_), incarnations);
  }
  struct stat found = {};
  ASSERT_EQ(stat((directory_ + "/incarnation").c_str(), &found), 0);
  EXPECT_EQ(found.st_mode & 0777, 0600u);
}

TEST_F(PredecessorTest, PredecessorsIn_FileThatIsNoIncarnation_IsNobody) {
  ASSERT_TRUE(LeaveToSuccessor(place_, {7}).ok());
  std::string whole;
  std::getline(std::ifstream(directory_ + "/incarnation"), whole);
  const std::string place = whole.substr(16);
  for (const std::string& text :
       {std::string(), "7" + place, "000000000000000g" + place, "00000000000000070" + place, "," + whole,
        whole.substr(0, 16) + "," + place, whole + " and more than that", whole.substr(0, 16)}) {
    std::ofstream(directory_ + "/incarnation") << text;
    EXPECT_EQ(PredecessorsIn(place_), Incarnations()) << text;
  }
}

// The oldest was answered, so it holds the rank unless a later one reached the coordinator.
TEST_F(PredecessorTest, LeaveToSuccessor_ManyThatHadNoAnswer_KeepsTheOldestAndTheNewest) {
  Incarnations all = {UINT64_MAX};
  for (uint64_t i = 1; i < 100; ++i) {
    all.push_back(UINT64_MAX - i);
    ASSERT_TRUE(LeaveToSuccessor(place_, all).ok());
    all = PredecessorsIn(place_);
    ASSERT_EQ(all.front(), UINT64_MAX);
    ASSERT_EQ(all.back(), UINT64_MAX - i);
  }
  EXPECT_EQ(all.size(), 8u);
  EXPECT_EQ(all[1], UINT64_MAX - 93);
}

// The process at the other place may still run: listening here does not prove that it has ended.
TEST_F(PredecessorTest, PredecessorsIn_DirectoryOfAnotherPlace_IsNobody) {
  ASSERT_TRUE(LeaveToSuccessor(place_, {7}).ok());
  EXPECT_EQ(PredecessorsIn({directory_, "another machine, or the same after a reboot"}), Incarnations());
  const std::string copy = directory_ + "/copy";
  std::filesystem::create_directory(copy);
  std::filesystem::copy_file(directory_ + "/incarnation", copy + "/incarnation");
  EXPECT_EQ(PredecessorsIn({copy, "boot"}), Incarnations());
  ASSERT_TRUE(LeaveToSuccessor({copy, "boot"}, {8}).ok());
  EXPECT_EQ(PredecessorsIn({copy, "boot"}), Incarnations{8});
  EXPECT_EQ(PredecessorsIn(place_), Incarnations{7});
}

TEST_F(PredecessorTest, LeaveToSuccessor_MachineWithoutAName_LeavesNothing) {
  ASSERT_TRUE(LeaveToSuccessor({directory_, ""}, {7}).ok());
  EXPECT_EQ(PredecessorsIn({directory_, ""}), Incarnations());
}

TEST_F(PredecessorTest, PredecessorsIn_SymbolicLink_IsNotFollowed) {
  ASSERT_TRUE(LeaveToSuccessor(place_, {7}).ok());
  std::filesystem::rename(directory_ + "/incarnation", directory_ + "/elsewhere");
  std::filesystem::create_symlink("elsewhere", directory_ + "/incarnation");
  EXPECT_EQ(PredecessorsIn(place_), Incarnations());
  ASSERT_TRUE(LeaveToSuccessor(place_, {8}).ok());
  EXPECT_EQ(PredecessorsIn(place_), Incarnations{8});
  std::string kept;
  std::ifstream(directory_ + "/elsewhere") >> kept;
  EXPECT_EQ(kept, "0000000000000007");
}

TEST_F(PredecessorTest, LeaveToSuccessor_UnfinishedFileOfADeadProcess_IsReplaced) {
  std::ofstream(directory_ + "/incarnation.new") << "half";
  ASSERT_TRUE(LeaveToSuccessor(place_, {8}).ok());
  EXPECT_EQ(PredecessorsIn(place_), Incarnations{8});
}

TEST_F(PredecessorTest, LeaveToSuccessor_DirectoryIsGone_IsASocketDirectoryError) {
  const absl::Status status = LeaveToSuccessor({directory_ + "/gone", "boot"}, {8});
  EXPECT_TRUE(HasReason(status, Reason::kSocketDirectory)) << status;
  EXPECT_EQ(PredecessorsIn({directory_ + "/gone", "boot"}), Incarnations());
}

}  // namespace
}  // namespace cairn

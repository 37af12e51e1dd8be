#include "agent/sockets/predecessor.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "common/status/reason.h"

namespace cairn {
namespace {

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

TEST_F(PredecessorTest, PredecessorIn_AfterEachRegistration_IsTheLast) {
  EXPECT_EQ(PredecessorIn(place_), 0u);
  for (const uint64_t incarnation : {uint64_t{7}, UINT64_MAX, uint64_t{9}}) {
    ASSERT_TRUE(LeaveToSuccessor(place_, incarnation).ok());
    EXPECT_EQ(PredecessorIn(place_), incarnation);
  }
  struct stat found = {};
  ASSERT_EQ(stat((directory_ + "/incarnation").c_str(), &found), 0);
  EXPECT_EQ(found.st_mode & 0777, 0600u);
}

TEST_F(PredecessorTest, PredecessorIn_FileThatIsNoIncarnation_IsNobody) {
  ASSERT_TRUE(LeaveToSuccessor(place_, 7).ok());
  std::string whole;
  std::getline(std::ifstream(directory_ + "/incarnation"), whole);
  const std::string place = whole.substr(16);
  for (const std::string& text : {std::string(), "7" + place, "000000000000000g" + place, "00000000000000070" + place,
                                  whole + " and more than that", whole.substr(0, 16)}) {
    std::ofstream(directory_ + "/incarnation") << text;
    EXPECT_EQ(PredecessorIn(place_), 0u) << text;
  }
}

// The process at the other place may still run: listening here does not prove that it has ended.
TEST_F(PredecessorTest, PredecessorIn_DirectoryOfAnotherPlace_IsNobody) {
  ASSERT_TRUE(LeaveToSuccessor(place_, 7).ok());
  EXPECT_EQ(PredecessorIn({directory_, "another machine, or the same after a reboot"}), 0u);
  const std::string copy = directory_ + "/copy";
  std::filesystem::create_directory(copy);
  std::filesystem::copy_file(directory_ + "/incarnation", copy + "/incarnation");
  EXPECT_EQ(PredecessorIn({copy, "boot"}), 0u);
  ASSERT_TRUE(LeaveToSuccessor({copy, "boot"}, 8).ok());
  EXPECT_EQ(PredecessorIn({copy, "boot"}), 8u);
  EXPECT_EQ(PredecessorIn(place_), 7u);
}

TEST_F(PredecessorTest, LeaveToSuccessor_MachineWithoutAName_LeavesNothing) {
  ASSERT_TRUE(LeaveToSuccessor({directory_, ""}, 7).ok());
  EXPECT_EQ(PredecessorIn({directory_, ""}), 0u);
}

TEST_F(PredecessorTest, PredecessorIn_SymbolicLink_IsNotFollowed) {
  ASSERT_TRUE(LeaveToSuccessor(place_, 7).ok());
  std::filesystem::rename(directory_ + "/incarnation", directory_ + "/elsewhere");
  std::filesystem::create_symlink("elsewhere", directory_ + "/incarnation");
  EXPECT_EQ(PredecessorIn(place_), 0u);
  ASSERT_TRUE(LeaveToSuccessor(place_, 8).ok());
  EXPECT_EQ(PredecessorIn(place_), 8u);
  std::string kept;
  std::ifstream(directory_ + "/elsewhere") >> kept;
  EXPECT_EQ(kept, "0000000000000007");
}

TEST_F(PredecessorTest, LeaveToSuccessor_UnfinishedFileOfADeadProcess_IsReplaced) {
  std::ofstream(directory_ + "/incarnation.new") << "half";
  ASSERT_TRUE(LeaveToSuccessor(place_, 8).ok());
  EXPECT_EQ(PredecessorIn(place_), 8u);
}

TEST_F(PredecessorTest, LeaveToSuccessor_DirectoryIsGone_IsASocketDirectoryError) {
  const absl::Status status = LeaveToSuccessor({directory_ + "/gone", "boot"}, 8);
  EXPECT_TRUE(HasReason(status, Reason::kSocketDirectory)) << status;
  EXPECT_EQ(PredecessorIn({directory_ + "/gone", "boot"}), 0u);
}

}  // namespace
}  // namespace cairn

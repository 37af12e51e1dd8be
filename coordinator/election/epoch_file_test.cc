#include "coordinator/election/epoch_file.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>

#include "common/rpc/reason.h"

namespace cairn {
namespace {

class EpochFileTest : public testing::Test {
 protected:
  EpochFileTest() {
    root_ = testing::TempDir() + "/epoch-XXXXXX";
    EXPECT_NE(mkdtemp(root_.data()), nullptr);
    storage_ = *PosixStorage::Open(root_, false);
  }
  ~EpochFileTest() override { std::filesystem::remove_all(root_); }

  absl::StatusOr<EpochFile> Acquire(absl::Duration patience = absl::ZeroDuration()) {
    return EpochFile::Acquire(*storage_, patience, Clock::Real(),
                              [this](const std::string& holder) { holder_ = holder; });
  }

  std::string root_;
  std::unique_ptr<PosixStorage> storage_;
  std::string holder_;
};

TEST_F(EpochFileTest, EachLeadership_CountsUp) {
  for (uint64_t epoch = 1; epoch <= 12; ++epoch) {
    const auto file = Acquire();
    ASSERT_TRUE(file.ok()) << file.status();
    EXPECT_EQ(file->epoch(), epoch);
  }
}

TEST_F(EpochFileTest, HeldLock_NamesItsHolder) {
  const auto first = Acquire();
  ASSERT_TRUE(first.ok());
  const auto second = Acquire();
  EXPECT_TRUE(HasReason(second.status(), Reason::kRootInUse)) << second.status();
  EXPECT_NE(second.status().message().find("process " + std::to_string(getpid())), std::string::npos);
  EXPECT_EQ(holder_, "") << "nobody waits";
  EXPECT_FALSE(Acquire(absl::Milliseconds(120)).ok());
  EXPECT_NE(holder_.find("(epoch 1)"), std::string::npos) << holder_;
}

TEST_F(EpochFileTest, DamagedFile_IsNotTakenForANewRoot) {
  ASSERT_TRUE(Acquire().ok());
  std::ofstream(root_ + "/.cairn/epoch") << "rubbish";
  EXPECT_TRUE(HasReason(Acquire().status(), Reason::kFileTruncated));
  std::ofstream(root_ + "/.cairn/epoch") << "epoch 41";
  EXPECT_EQ(Acquire()->epoch(), 42u);
}

}  // namespace
}  // namespace cairn

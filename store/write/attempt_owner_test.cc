#include "store/write/attempt_owner.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

#include "common/file/testing/watched_pread.h"
#include "common/status/reason.h"
#include "store/posix/posix_storage.h"

namespace cairn {
namespace {

constexpr char kDirectory[] = "demo/000000000001/0001";
constexpr uint64_t kNonce = 0x0123456789abcdef;

class AttemptOwnerTest : public testing::Test {
 protected:
  AttemptOwnerTest() {
    root_ = testing::TempDir() + "/owner-XXXXXX";
    EXPECT_NE(mkdtemp(root_.data()), nullptr);
    storage_ = *PosixStorage::Open(root_, false);
  }
  ~AttemptOwnerTest() override { std::filesystem::remove_all(root_); }

  absl::Status Check(uint64_t nonce = kNonce) { return CheckAttemptOwner(*storage_, kDirectory, nonce); }

  std::string root_;
  std::unique_ptr<PosixStorage> storage_;
};

TEST_F(AttemptOwnerTest, Make_DirectoryStands_IsLeftToItsOwner) {
  ASSERT_EQ(*MakeAttemptDirectory(*storage_, kDirectory, kNonce, "demo@1"), Put::kCreated);
  EXPECT_EQ(*MakeAttemptDirectory(*storage_, kDirectory, kNonce + 1, "demo@1"), Put::kExists);
  EXPECT_TRUE(Check().ok());
  EXPECT_TRUE(HasReason(Check(kNonce + 1), Reason::kRootMismatch));
}

TEST_F(AttemptOwnerTest, Check_NoOwner_IsOtherStorage) {
  EXPECT_TRUE(HasReason(Check(), Reason::kRootMismatch)) << "no directory";
  ASSERT_TRUE(MakeAttemptDirectory(*storage_, kDirectory, kNonce, "demo@1").ok());
  const std::string file = root_ + "/" + kDirectory + "/.owner";
  std::ofstream(file, std::ios::trunc) << "";
  EXPECT_TRUE(HasReason(Check(), Reason::kRootMismatch)) << "a power cut may leave it empty";
  std::filesystem::remove(file);
  EXPECT_TRUE(HasReason(Check(), Reason::kRootMismatch)) << "no file";
}

TEST_F(AttemptOwnerTest, Check_BitsFlipWhileRead_BlamesNobody) {
  ASSERT_TRUE(MakeAttemptDirectory(*storage_, kDirectory, kNonce, "demo@1").ok());
  watched_pread.spoiled_offset = 3;
  watched_pread.to_spoil = 1;
  EXPECT_TRUE(Check().ok()) << "the second reading has the number";
  EXPECT_EQ(watched_pread.to_spoil, 0);
  watched_pread.to_spoil = 2;
  EXPECT_TRUE(HasReason(Check(), Reason::kStorageError)) << "two different readings prove nothing";
  EXPECT_EQ(watched_pread.to_spoil, 0);
  watched_pread.spoiled_offset = -1;
  EXPECT_TRUE(Check().ok());
}

}  // namespace
}  // namespace cairn

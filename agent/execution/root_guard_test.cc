#include "agent/execution/root_guard.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "common/base/random_id.h"
#include "common/status/reason.h"
#include "store/posix/posix_storage.h"
#include "store/root/root_proof.h"

namespace cairn {
namespace {

class RootGuardTest : public testing::Test {
 protected:
  RootGuardTest() {
    directory_ = testing::TempDir() + "/guard-" + RandomToken(6);
    std::filesystem::create_directory(directory_);
    storage_ = *PosixStorage::Open(Root(), true);
    guard_ = std::make_unique<RootGuard>(*storage_, [this] { ++registrations_; });
  }
  ~RootGuardTest() override { std::filesystem::remove_all(directory_); }

  std::string Root() const { return directory_ + "/root"; }
  // Does what a coordinator does that serves this directory.
  std::string Serve() { return *PutRootProof(**PosixStorage::Open(Root(), true)); }
  void Register() { guard_->Accepted(guard_->ReadProof()); }
  void Unmount(const std::string& to) { std::filesystem::rename(Root(), directory_ + "/" + to); }
  void Mount(const std::string& from) { std::filesystem::rename(directory_ + "/" + from, Root()); }

  std::string directory_;
  std::unique_ptr<PosixStorage> storage_;
  std::unique_ptr<RootGuard> guard_;
  int registrations_ = 0;
};

TEST_F(RootGuardTest, Check_RootStays_DoesNotRegisterAgain) {
  const std::string proof = Serve();
  EXPECT_EQ(guard_->ReadProof(), proof);
  guard_->Accepted(proof);
  Serve();  // another coordinator has started, and will have the agent register again
  EXPECT_TRUE(guard_->Check().ok());
  EXPECT_EQ(registrations_, 0);
}

TEST_F(RootGuardTest, Check_EmptyDirectoryInItsPlace_FailsUntilTheRootIsBack) {
  Serve();
  Register();
  Unmount("storage");
  EXPECT_TRUE(HasReason(guard_->Check(), Reason::kRootMissing)) << guard_->Check();
  std::filesystem::create_directory(Root());
  EXPECT_TRUE(HasReason(guard_->Check(), Reason::kRootMismatch)) << guard_->Check();
  EXPECT_TRUE(HasReason(guard_->Check(), Reason::kRootMismatch)) << "also when it was looked at before";
  EXPECT_GT(registrations_, 0);
  EXPECT_EQ(guard_->ReadProof(), "");
  std::filesystem::remove(Root());
  Mount("storage");
  EXPECT_TRUE(guard_->Check().ok()) << "what was proven is back";
}

TEST_F(RootGuardTest, Check_AnotherMountWithTheSameProof_IsTheSameRoot) {
  Serve();
  Register();
  std::filesystem::copy(Root(), directory_ + "/second-mount", std::filesystem::copy_options::recursive);
  Unmount("first-mount");
  Mount("second-mount");
  EXPECT_TRUE(guard_->Check().ok());
  EXPECT_EQ(registrations_, 0);
}

TEST_F(RootGuardTest, Accepted_RootChangedDuringTheRegistration_IsNotTakenForProven) {
  Serve();
  const std::string proof = guard_->ReadProof();
  Unmount("storage");
  std::filesystem::create_directory(Root());
  EXPECT_FALSE(guard_->Check().ok());
  guard_->Accepted(proof);
  EXPECT_TRUE(HasReason(guard_->Check(), Reason::kRootMismatch)) << guard_->Check();
}

}  // namespace
}  // namespace cairn

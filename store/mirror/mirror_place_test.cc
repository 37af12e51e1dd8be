#include "store/mirror/mirror_place.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "common/status/reason.h"
#include "store/mirror/testing/stored_step.h"
#include "store/write/attempt_store.h"

namespace cairn {
namespace {

namespace fs = std::filesystem;

class MirrorPlaceTest : public TwoRoots {
 protected:
  MirrorPlaceTest() { EXPECT_TRUE(place_.Hold().ok()); }

  const std::string mirror_name_ = directory_ + "/mirror";
  MirrorPlace place_{mirror_name_, directory_ + "/root",
                     [this](bool create) { return PosixStorage::Open(mirror_name_, create); }, *root_};
};

TEST_F(MirrorPlaceTest, Hold_TheMirrorIsUnmounted_WhoStillWritesWritesNothingAtTheMountPoint) {
  auto held = place_.held();
  ASSERT_NE(held, nullptr);
  fs::rename(mirror_name_, directory_ + "/real");
  fs::create_directories(mirror_name_ + "/.cairn");
  EXPECT_TRUE(HasReason(place_.Hold().status(), Reason::kRootMissing));
  EXPECT_EQ(place_.held(), nullptr);
  // A copy that is under way, and what follows it.
  Storage& storage = *held->side->storage;
  ASSERT_TRUE(storage.MakeDirectories("demo/1").ok());
  ASSERT_TRUE(storage.PutIfAbsent("demo/1/record", "record").ok());
  AttemptStore::ReleaseReserve(storage);
  AttemptStore::KeepReserve(storage);
  EXPECT_TRUE(held->lock->Check().ok()) << "its directory is still there, and the lock too";
  EXPECT_TRUE(fs::is_empty(mirror_name_ + "/.cairn"));
  EXPECT_EQ(std::distance(fs::directory_iterator(mirror_name_), fs::directory_iterator()), 1);
  EXPECT_EQ(ReadWhole(directory_ + "/real/demo/1/record"), "record");
  EXPECT_TRUE(HasReason(place_.ToRead().status(), Reason::kRootMissing));
  held.reset();
  fs::remove_all(mirror_name_);
  fs::rename(directory_ + "/real", mirror_name_);
  const auto again = place_.Hold();
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(ReadWhole(AtMirror("demo/1/record")), "record");
  EXPECT_EQ(*place_.Hold(), *again) << "nothing has changed";
}

TEST_F(MirrorPlaceTest, Hold_AnotherDirectoryIsMountedThere_IsJudgedAnew) {
  fs::rename(mirror_name_, directory_ + "/real");
  fs::create_directories(mirror_name_ + "/.cairn");
  std::ofstream(mirror_name_ + "/.cairn/mirror-of") << "/another/root\n";
  EXPECT_TRUE(HasReason(place_.Hold().status(), Reason::kRootInUse));
  EXPECT_TRUE(HasReason(place_.ToRead().status(), Reason::kRootInUse));
}

}  // namespace
}  // namespace cairn

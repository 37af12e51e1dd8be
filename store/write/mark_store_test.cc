#include "store/write/mark_store.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>

#include "common/base/fake_clock.h"
#include "common/status/reason.h"
#include "store/posix/posix_storage.h"
#include "store/read/step_marks.h"
#include "store/storage/testing/fake_root_lock.h"

namespace cairn {
namespace {

namespace fs = std::filesystem;

class MarkStoreTest : public testing::Test {
 protected:
  static constexpr char kJob[] = "demo";
  using Files = std::map<std::string, std::string>;  // names and contents

  MarkStoreTest() {
    std::string pattern = testing::TempDir() + "/marks_XXXXXX";
    root_ = mkdtemp(pattern.data());
    storage_ = *PosixStorage::Open(root_, false);
    fs::create_directories(Step());
  }
  ~MarkStoreTest() override { fs::remove_all(root_); }

  std::string Step() const { return root_ + "/demo/000000000001"; }
  std::string Rules() const { return root_ + "/demo/.rules"; }
  static void Write(const std::string& path, const std::string& text) { std::ofstream(path) << text; }
  static Files In(const std::string& directory) {
    Files files;
    for (const auto& entry : fs::directory_iterator(directory)) {
      std::ifstream in(entry.path());
      files[entry.path().filename()] = {std::istreambuf_iterator<char>(in), {}};
    }
    return files;
  }
  MarkStore Store() { return {*storage_, clock_, lock_}; }
  bool IsPinned() { return ReadMarks(*storage_, kJob, 1)->pinned(); }

  std::string root_;
  std::unique_ptr<PosixStorage> storage_;
  FakeClock clock_;
  FakeRootLock lock_;
};

TEST_F(MarkStoreTest, InADirectory_AMarkIsAFileThatComesAndGoes) {
  ASSERT_TRUE(Store().Set(kJob, 1, "", "note\n").ok());
  ASSERT_TRUE(Store().Set(kJob, 1, "", "another\n").ok());
  ASSERT_TRUE(Store().Set(kJob, 1, "paper", "time\n").ok());
  EXPECT_EQ(In(Step()), (Files{{"pinned", "note\n"}, {"paper.tag", "time\n"}}));
  EXPECT_EQ(*ReadMark(*storage_, kJob, 1, ""), "note\n");
  ASSERT_TRUE(Store().Clear(kJob, 1, "").ok());
  ASSERT_TRUE(Store().Clear(kJob, 1, "other").ok());
  EXPECT_EQ(In(Step()), (Files{{"paper.tag", "time\n"}}));
}

TEST_F(MarkStoreTest, WithNumbers_LateRequestsChangeNothing) {
  Write(Step() + "/1-1-pinned.mark", "note\n");
  ASSERT_TRUE(Store().Clear(kJob, 1, "").ok());
  const Files unpinned = In(Step());
  EXPECT_EQ(unpinned.size(), 1u) << "what does not count any more is removed";
  EXPECT_FALSE(IsPinned());
  clock_.Advance(absl::Seconds(1));
  ASSERT_TRUE(Store().Set(kJob, 1, "", "anew\n").ok());
  EXPECT_TRUE(IsPinned());
  // Now the requests of the first change arrive: what was put, and what was removed.
  for (const auto& [name, text] : unpinned) Write(Step() + "/" + name, text);
  Write(Step() + "/1-1-pinned.mark", "note\n");
  fs::remove(Step() + "/1-1-pinned.mark");
  EXPECT_TRUE(IsPinned());
  EXPECT_EQ(*ReadMark(*storage_, kJob, 1, ""), "anew\n");
  ASSERT_TRUE(Store().Clear(kJob, 1, "").ok());
  Write(Step() + "/1-1-pinned.mark", "note\n");
  EXPECT_FALSE(IsPinned());
  EXPECT_EQ(*ReadMark(*storage_, kJob, 1, ""), std::nullopt);
}

TEST_F(MarkStoreTest, WithNumbers_AChangeThatSeemsToChangeNothing_IsPutAllTheSame) {
  Write(Step() + "/1-1-pinned.mark", "note\n");
  ASSERT_TRUE(Store().Set(kJob, 1, "", "another\n").ok());
  const Files files = In(Step());
  ASSERT_EQ(files.size(), 1u);
  EXPECT_NE(files.begin()->first, "1-1-pinned.mark") << "an earlier request may be about to take the pin away";
  EXPECT_EQ(files.begin()->second, "note\n") << "a pin keeps its note";
}

TEST_F(MarkStoreTest, WithNumbers_TheFileOfTheOtherFormIsTaken) {
  Write(Step() + "/paper.tag", "time\n");
  Write(Step() + "/1-1-tag-paper.mark", "time\n");
  ASSERT_TRUE(Store().Clear(kJob, 1, "paper").ok());
  EXPECT_EQ(In(Step()).size(), 1u);
  EXPECT_TRUE(ReadMarks(*storage_, kJob, 1)->tags().empty());
}

TEST_F(MarkStoreTest, TheRootIsLost_ChangesNothingOrSaysThatNobodyKnows) {
  Write(Step() + "/1-1-pinned.mark", "note\n");
  int checks = 0;
  lock_.before_check = [&] {
    if (++checks == 2) lock_.held = MakeError(Reason::kRootInUse, "another one serves the root");
  };
  const absl::Status unknown = Store().Clear(kJob, 1, "");
  EXPECT_TRUE(HasReason(unknown, Reason::kRootInUse));
  EXPECT_TRUE(MetadataOf(unknown).contains("outcome")) << "the next holder may have read before the record was there";
  const Files files = In(Step());
  EXPECT_TRUE(HasReason(Store().Set(kJob, 1, "", "x\n"), Reason::kRootInUse));
  EXPECT_TRUE(HasReason(Store().SetPolicy(kJob, {.keep_last = 1}), Reason::kRootInUse));
  EXPECT_EQ(In(Step()), files);
}

TEST_F(MarkStoreTest, Policy_InADirectory_IsOneFile) {
  ASSERT_TRUE(Store().SetPolicy(kJob, {.keep_last = 3}).ok());
  EXPECT_TRUE(fs::exists(root_ + "/demo/.retention"));
  EXPECT_EQ(Store().ReadPolicy(kJob)->keep_last, 3);
  ASSERT_TRUE(Store().SetPolicy(kJob, {}).ok());
  EXPECT_FALSE(fs::exists(root_ + "/demo/.retention"));
  EXPECT_TRUE(Store().ReadPolicy(kJob)->empty());
}

TEST_F(MarkStoreTest, Policy_WithNumbers_TheHighestCounts) {
  fs::create_directories(Rules());
  Write(root_ + "/demo/.retention", "retention/1 keep-last 9 keep-every 0\n");
  Write(Rules() + "/1-1", "retention/1 keep-last 5 keep-every 0\n");
  EXPECT_EQ(Store().ReadPolicy(kJob)->keep_last, 5);
  ASSERT_TRUE(Store().SetPolicy(kJob, {.keep_last = 3}).ok());
  const Files three = In(Rules());
  EXPECT_EQ(three.size(), 1u);
  clock_.Advance(absl::Seconds(1));
  ASSERT_TRUE(Store().SetPolicy(kJob, {.keep_every = 7}).ok());
  for (const auto& [name, text] : three) Write(Rules() + "/" + name, text);  // the request arrives late
  EXPECT_EQ(Store().ReadPolicy(kJob)->keep_last, 0);
  EXPECT_EQ(Store().ReadPolicy(kJob)->keep_every, 7);
  ASSERT_TRUE(Store().SetPolicy(kJob, {}).ok());
  for (const auto& [name, text] : three) Write(Rules() + "/" + name, text);
  EXPECT_TRUE(Store().ReadPolicy(kJob)->empty());
  Write(Rules() + "/999-1", "what is this\n");
  EXPECT_TRUE(HasReason(Store().ReadPolicy(kJob).status(), Reason::kRetentionUnreadable));
}

TEST_F(MarkStoreTest, Set_NoNumberCanFollow_IsRefusedAndTheRecordStays) {
  const std::string last = "4611686018427387903-4611686018427387903-pinned.mark";
  Write(Step() + "/" + last, "note\n");
  ASSERT_TRUE(IsPinned());
  const absl::Status refused = Store().Clear(kJob, 1, "");
  EXPECT_TRUE(HasReason(refused, Reason::kStorageError)) << refused;
  EXPECT_TRUE(IsPinned());
  EXPECT_EQ(In(Step()), (Files{{last, "note\n"}}));
}

}  // namespace
}  // namespace cairn

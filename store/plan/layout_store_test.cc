#include "store/plan/layout_store.h"

#include <gtest/gtest.h>

#include "common/base/digest.h"
#include "common/status/reason.h"

namespace cairn {
namespace {

TEST(LayoutStoreTest, PutChunk_AllChunks_MakeALayout) {
  LayoutStore store(1 << 20);
  const std::string bytes(1000, 'x');
  const std::string digest = Digest(bytes);
  EXPECT_EQ(*store.PutChunk("a", digest, 1000, 0, bytes.substr(0, 400)), 400u);
  EXPECT_EQ(store.Get(digest), nullptr);
  EXPECT_EQ(*store.PutChunk("a", digest, 1000, 400, bytes.substr(400)), 1000u);
  EXPECT_EQ(*store.Get(digest), bytes);
  // A repeated upload of what is there is done at once.
  EXPECT_EQ(*store.PutChunk("b", digest, 1000, 0, "x"), 1000u);
}

TEST(LayoutStoreTest, PutChunk_WrongChunks_AreRefused) {
  LayoutStore store(1 << 20);
  const std::string digest = Digest("0123456789");
  EXPECT_TRUE(HasReason(store.PutChunk("a", "short", 10, 0, "0").status(), Reason::kBadRequest));
  EXPECT_TRUE(HasReason(store.PutChunk("a", digest, 10, 5, "56789").status(), Reason::kBadRequest));
  EXPECT_EQ(*store.PutChunk("a", digest, 10, 0, "01234"), 5u);
  EXPECT_TRUE(HasReason(store.PutChunk("a", digest, 10, 3, "34567").status(), Reason::kBadRequest)) << "out of order";
  EXPECT_TRUE(HasReason(store.PutChunk("a", digest, 10, 5, "567890").status(), Reason::kBadRequest)) << "too long";
  EXPECT_TRUE(HasReason(store.PutChunk("a", digest, 10, 5, "xxxxx").status(), Reason::kBadRequest)) << "other bytes";
  EXPECT_EQ(store.Get(digest), nullptr);
  // The upload begins again.
  EXPECT_EQ(*store.PutChunk("a", digest, 10, 0, "0123456789"), 10u);
  EXPECT_TRUE(
      HasReason(store.PutChunk("a", Digest("y"), kMaxLayoutBytes + 1, 0, "y").status(), Reason::kMessageTooLarge));
}

TEST(LayoutStoreTest, Put_NoRoom_IsRefused) {
  LayoutStore store(2500);
  ASSERT_TRUE(store.Put(Digest(std::string(1000, 'a')), std::string(1000, 'a')).ok());
  ASSERT_TRUE(store.Put(Digest(std::string(1000, 'b')), std::string(1000, 'b')).ok());
  const std::string third(1000, 'c');
  EXPECT_TRUE(HasReason(store.Put(Digest(third), third), Reason::kMessageTooLarge));
  store.Drop(Digest(std::string(1000, 'a')));
  EXPECT_TRUE(store.Put(Digest(third), third).ok());
  EXPECT_EQ(store.size(), 2u);
}

TEST(LayoutStoreTest, PutChunk_UploadThatWasLeftBehind_GivesWay) {
  LayoutStore store(2500);
  ASSERT_TRUE(store.PutChunk("gone", Digest("1"), 3000, 0, std::string(2000, '1')).ok());
  EXPECT_TRUE(store.PutChunk("b", Digest("2"), 3000, 0, std::string(2000, '2')).ok());
  EXPECT_TRUE(HasReason(store.PutChunk("b", Digest("2"), 3000, 2000, std::string(1000, '2')).status(),
                        Reason::kMessageTooLarge))
      << "one upload alone takes more than there is";
}

TEST(LayoutStoreTest, Put_OneJobHasTooMany_IsRefusedByNameAndOthersAreNot) {
  LayoutStore store(10'000, 2500);
  for (const char c : {'a', 'b'})
    ASSERT_TRUE(store.Put(Digest(std::string(1000, c)), std::string(1000, c), "big").ok());
  const std::string third(1000, 'c');
  const absl::Status refused = store.Put(Digest(third), third, "big");
  EXPECT_TRUE(HasReason(refused, Reason::kMessageTooLarge)) << refused;
  EXPECT_NE(refused.message().find("of job big take 2000 bytes of at most 2500"), absl::string_view::npos) << refused;
  EXPECT_TRUE(MetadataOf(refused).contains("next"));
  EXPECT_EQ(store.refused(), 1u);
  EXPECT_TRUE(store.Put(Digest(third), third, "small").ok());
  store.Drop(Digest(std::string(1000, 'a')));
  const std::string fourth(1000, 'd');
  EXPECT_TRUE(store.Put(Digest(fourth), fourth, "big").ok()) << "what is dropped counts no more";
}

TEST(LayoutStoreTest, Put_RoomCanBeMade_IsTaken) {
  LayoutStore store(10'000, 2500);
  std::vector<std::string> old;
  store.OnFull([&](const std::string& job, bool all_jobs) {
    EXPECT_EQ(job, "big");
    EXPECT_FALSE(all_jobs);
    if (old.empty()) return false;
    store.Drop(old.front());
    old.erase(old.begin());
    return true;
  });
  for (char c = 'a'; c < 'k'; ++c) {
    const std::string bytes(1000, c);
    ASSERT_TRUE(store.Put(Digest(bytes), bytes, "big").ok()) << c;
    old.push_back(Digest(bytes));
  }
  EXPECT_EQ(store.size(), 2u);
  const std::string all(2501, 'z');
  EXPECT_TRUE(HasReason(store.Put(Digest(all), all, "big"), Reason::kMessageTooLarge));
}

}  // namespace
}  // namespace cairn

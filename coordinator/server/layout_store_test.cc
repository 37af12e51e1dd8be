#include "coordinator/server/layout_store.h"

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
  // From the beginning again.
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

}  // namespace
}  // namespace cairn

#include "common/base/digest.h"

#include <gtest/gtest.h>

namespace cairn {
namespace {

TEST(DigestTest, Digest_VectorsOfFips180_AreEqual) {
  EXPECT_EQ(DigestHex(Digest("")), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(DigestHex(Digest("abc")), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST(DigesterTest, Finish_PartsCutElsewhere_Differs) {
  EXPECT_NE(Digester().Add("ab").Add("c").Finish(), Digester().Add("a").Add("bc").Finish());
  EXPECT_EQ(Digester().Add("ab").Add(7).Finish(), Digester().Add("ab").Add(7).Finish());
}

TEST(RunningDigestTest, Finish_BytesInPieces_IsTheDigestOfAll) {
  RunningDigest digest;
  digest.Add("ab");
  RunningDigest copy(digest);
  digest.Add("c");
  copy.Add("d");
  EXPECT_EQ(digest.Finish(), Digest("abc"));
  EXPECT_EQ(copy.Finish(), Digest("abd"));
}

}  // namespace
}  // namespace cairn

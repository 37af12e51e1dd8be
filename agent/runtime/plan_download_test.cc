#include "agent/runtime/plan_download.h"

#include <gtest/gtest.h>

#include <string>

#include "cairn/v1/plan.pb.h"
#include "common/rpc/plan_part.h"
#include "common/status/reason.h"

namespace cairn {
namespace {

const std::string kDigest(32, 'd');

v1::GetPlanResponse Chunk(const std::string& bytes, uint64_t total) {
  v1::GetPlanResponse response;
  response.set_chunk(bytes);
  response.set_total_bytes(total);
  return response;
}
v1::GetPlanResponse Same() {
  v1::GetPlanResponse response;
  response.set_same_part(true);
  return response;
}
// A part that begins with the digest of its plan, as the coordinator writes it.
std::string PartOf(const std::string& digest) {
  v1::WritePlan plan;
  plan.set_plan_digest(digest);
  plan.set_rank(3);
  return plan.SerializeAsString();
}

TEST(PlanDownloadTest, Take_SeveralChunks_IsTheWholePart) {
  PlanDownload download(kDigest, "");
  EXPECT_EQ(download.Next().plan_digest(), kDigest);
  EXPECT_EQ(download.Next().offset(), 0);
  ASSERT_TRUE(download.Take(Chunk("abc", 5)).ok());
  EXPECT_FALSE(download.done());
  EXPECT_EQ(download.Next().offset(), 3);
  ASSERT_TRUE(download.Take(Chunk("de", 5)).ok());
  EXPECT_TRUE(download.done());
  EXPECT_EQ(std::move(download).Plan(), "abcde");
}

TEST(PlanDownloadTest, Take_AnEmptyPart_IsDone) {
  PlanDownload download(kDigest, "");
  ASSERT_TRUE(download.Take(Chunk("", 0)).ok());
  EXPECT_TRUE(download.done());
  EXPECT_EQ(std::move(download).Plan(), "");
}

TEST(PlanDownloadTest, Take_ThePartIsTheKnownOne_GetsThisPlansDigest) {
  const std::string known = PartOf(std::string(32, 'k'));
  PlanDownload download(kDigest, known);
  EXPECT_EQ(download.Next().known_part_digest(), BodyDigestOf(known));
  EXPECT_NE(download.Next().known_part_digest(), "");
  ASSERT_TRUE(download.Take(Same()).ok());
  EXPECT_TRUE(download.done());
  EXPECT_EQ(std::move(download).Plan(), PartOf(kDigest));
}

TEST(PlanDownloadTest, Take_TheKnownPartWasNotNamed_IsAnError) {
  PlanDownload without(kDigest, "");
  EXPECT_TRUE(HasReason(without.Take(Same()), Reason::kInternal));
  PlanDownload begun(kDigest, PartOf(std::string(32, 'k')));
  ASSERT_TRUE(begun.Take(Chunk("abc", 5)).ok());
  EXPECT_EQ(begun.Next().known_part_digest(), "") << "half of another part is here already";
  EXPECT_TRUE(HasReason(begun.Take(Same()), Reason::kInternal));
}

TEST(PlanDownloadTest, Take_ChunksThatDoNotFit_AreErrors) {
  PlanDownload too_long(kDigest, "");
  EXPECT_TRUE(HasReason(too_long.Take(Chunk("abcdef", 5)), Reason::kInternal));
  PlanDownload another_total(kDigest, "");
  ASSERT_TRUE(another_total.Take(Chunk("abc", 5)).ok());
  EXPECT_TRUE(HasReason(another_total.Take(Chunk("de", 6)), Reason::kInternal));
  PlanDownload no_progress(kDigest, "");
  EXPECT_TRUE(HasReason(no_progress.Take(Chunk("", 5)), Reason::kInternal)) << "it would never end";
  PlanDownload huge(kDigest, "");
  EXPECT_TRUE(HasReason(huge.Take(Chunk("a", kMaxPlanBytes + 1)), Reason::kInternal));
}

}  // namespace
}  // namespace cairn

#include "agent/runtime/layout_upload.h"

#include <gtest/gtest.h>

#include <string>

#include "agent/runtime/link_limits.h"
#include "common/status/reason.h"

namespace cairn {
namespace {

using link_limits::kChunkBytes;

RankLayout LayoutOf(size_t bytes) {
  RankLayout layout;
  layout.digest = "digest";
  for (size_t i = 0; i < bytes; ++i) layout.bytes.push_back(static_cast<char>(i * 7 + i / 1000));
  return layout;
}

v1::PutLayoutResponse Received(uint64_t bytes) {
  v1::PutLayoutResponse response;
  response.set_received_bytes(bytes);
  return response;
}

TEST(LayoutUploadTest, Next_LargerThanAChunk_SendsEveryByteOnce) {
  const RankLayout layout = LayoutOf(2 * kChunkBytes + 5);
  LayoutUpload upload(layout);
  std::string sent;
  int parts = 0;
  while (!upload.done()) {
    const v1::PutLayoutRequest request = upload.Next();
    EXPECT_EQ(request.digest(), "digest");
    EXPECT_EQ(request.total_bytes(), layout.bytes.size());
    EXPECT_EQ(request.offset(), sent.size());
    sent += request.chunk();
    ASSERT_TRUE(upload.Take(Received(sent.size())).ok());
    ASSERT_LE(++parts, 3);
  }
  EXPECT_EQ(sent, layout.bytes);
  EXPECT_EQ(parts, 3);
}

TEST(LayoutUploadTest, Next_NothingToSend_IsOneEmptyPart) {
  const RankLayout layout = LayoutOf(0);
  LayoutUpload upload(layout);
  EXPECT_FALSE(upload.done());
  EXPECT_EQ(upload.Next().chunk(), "");
  EXPECT_TRUE(upload.Take(Received(0)).ok());
  EXPECT_TRUE(upload.done());
}

TEST(LayoutUploadTest, Take_TheCoordinatorHasMoreAlready_GoesOnBehindIt) {
  const RankLayout layout = LayoutOf(3 * kChunkBytes);
  LayoutUpload upload(layout);
  ASSERT_TRUE(upload.Take(Received(2 * kChunkBytes)).ok());
  EXPECT_EQ(upload.Next().offset(), 2 * kChunkBytes);
}

TEST(LayoutUploadTest, Take_AnAnswerThatMakesNoSense_IsAnError) {
  const RankLayout layout = LayoutOf(2 * kChunkBytes);
  LayoutUpload upload(layout);
  EXPECT_TRUE(HasReason(upload.Take(Received(0)), Reason::kInternal)) << "no progress: it would never end";
  EXPECT_TRUE(HasReason(upload.Take(Received(layout.bytes.size() + 1)), Reason::kInternal)) << "more than there is";
  ASSERT_TRUE(upload.Take(Received(kChunkBytes)).ok());
  EXPECT_TRUE(HasReason(upload.Take(Received(kChunkBytes)), Reason::kInternal)) << "no progress";
}

}  // namespace
}  // namespace cairn

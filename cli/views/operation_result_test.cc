#include "cli/views/operation_result.h"

#include <gtest/gtest.h>

#include "common/status/reason.h"
#include "common/status/status_proto.h"

namespace cairn::cli {
namespace {

TEST(OperationResultTest, ResultOf_WithoutAndWithAnError_IsDoneOrTheReason) {
  v1::Timeline timeline;
  timeline.set_kind(v1::Timeline::SAVE);
  timeline.set_step(3);
  EXPECT_EQ(ResultOf(timeline), "done");
  *timeline.mutable_error() = StatusToProto(MakeError(Reason::kRankLost, "rank 2 is lost"));
  EXPECT_EQ(ResultOf(timeline), "RANK_LOST");
}

TEST(OperationResultTest, ResultOf_AFirstStart_FoundNothing) {
  v1::Timeline timeline;
  timeline.set_kind(v1::Timeline::LOAD);
  *timeline.mutable_error() = StatusToProto(MakeError(Reason::kNotCommitted, "demo has no committed checkpoint"));
  EXPECT_EQ(ResultOf(timeline), "nothing");
  timeline.set_step(7);
  EXPECT_EQ(ResultOf(timeline), "NOT_COMMITTED") << "whoever names a step expects it";
}

}  // namespace
}  // namespace cairn::cli

#include "cli/client/mirror_watch.h"

#include <gtest/gtest.h>

#include "common/status/reason.h"
#include "common/status/status_proto.h"

namespace cairn::cli {
namespace {

v1::Mirror Mirror(const std::string& error = "", uint32_t waiting = 0) {
  v1::Mirror mirror;
  mirror.set_address("s3://models/llm");
  mirror.set_steps_waiting(waiting);
  if (!error.empty()) *mirror.mutable_error() = StatusToProto(MakeError(Reason::kStorageError, error));
  return mirror;
}

TEST(MirrorNewsTest, Take_SaysEachChangeOnce) {
  MirrorNews news;
  EXPECT_EQ(news.Take(Mirror()), "");
  EXPECT_EQ(news.Take(Mirror("it is down")),
            "the mirror s3://models/llm cannot be used, and is tried again: STORAGE_ERROR: it is down");
  EXPECT_EQ(news.Take(Mirror("it is down")), "");
  EXPECT_NE(news.Take(Mirror("no such bucket")).find("no such bucket"), std::string::npos);
  EXPECT_EQ(news.Take(Mirror()), "the mirror s3://models/llm works again");
  EXPECT_EQ(news.Take(Mirror()), "");
}

TEST(MirrorNewsTest, Take_ItWasNotLookedAtYet_IsSaidTheSecondTime) {
  v1::Mirror mirror = Mirror();
  *mirror.mutable_error() = StatusToProto(MakeError(Reason::kStorageStalled, "it was not looked at yet"));
  MirrorNews news;
  EXPECT_EQ(news.Take(mirror), "");
  EXPECT_NE(news.Take(mirror), "");
  EXPECT_EQ(news.Take(mirror), "");
}

TEST(MirrorNewsTest, AtEnd_SaysWhatIsMissing) {
  EXPECT_EQ(MirrorNews::AtEnd(Mirror()), "");
  EXPECT_EQ(MirrorNews::AtEnd(Mirror("", 2)),
            "the mirror s3://models/llm lacks 2 steps; the next coordinator of this root goes on copying");
  EXPECT_EQ(MirrorNews::AtEnd(Mirror("it is down")),
            "the mirror s3://models/llm may lack steps; the next coordinator of this root goes on copying; "
            "STORAGE_ERROR: it is down");
}

}  // namespace
}  // namespace cairn::cli

#include "cli/command.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "common/status/reason.h"

namespace cairn::cli {
namespace {

TEST(ExitStatusForTest, ExitStatusFor_EachReason_TellsKnownFromUnknownOutcomes) {
  EXPECT_EQ(ExitStatusFor(absl::OkStatus()), 0);
  EXPECT_EQ(ExitStatusFor(MakeError(Reason::kRankLate, "x")), 1);
  EXPECT_EQ(ExitStatusFor(MakeError(Reason::kBadRequest, "x")), 1) << "the coordinator has refused it";
  EXPECT_EQ(ExitStatusFor(MakeError(Reason::kBadRequest, "x", {{"option", "--coordinator"}})), 2);
  EXPECT_EQ(ExitStatusFor(MakeError(Reason::kCoordinatorUnreachable, "x")), 3);
  EXPECT_EQ(ExitStatusFor(MakeError(Reason::kTimedOut, "x")), 3);
  EXPECT_EQ(ExitStatusFor(MakeError(Reason::kInterrupted, "x")), 130);
  EXPECT_EQ(ExitStatusFor(absl::UnavailableError("socket")), 3);
}

TEST(ErrorToJsonTest, ErrorToJson_AnyError_HasTheFourKeys) {
  const auto json = ErrorToJson(MakeError(Reason::kNoSpace, "disk full", {{"rank", "3"}}));
  EXPECT_EQ(json.dump(),
            R"({"code":"RESOURCE_EXHAUSTED","reason":"NO_SPACE","message":"disk full","metadata":{"rank":"3"}})");
}

}  // namespace
}  // namespace cairn::cli

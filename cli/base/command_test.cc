#include "cli/base/command.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/strings/str_cat.h"
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

TEST(JsonTextTest, JsonText_NameThatIsNoUtf8_IsValidAllTheSame) {
  const std::string text = JsonText({{"root", "x\xff"}}, -1);
  EXPECT_EQ(text, "{\"root\":\"x\xef\xbf\xbd\"}");
  EXPECT_TRUE(nlohmann::json::accept(text));
}

TEST(JsonTextTest, JsonText_NameThatATerminalWouldObey_IsEscapedAndStaysTheSame) {
  const std::string name = "w\033[2J\u202e\u009b\u00e9";
  const std::string text = JsonText({{name, 1}}, -1);
  EXPECT_EQ(text, "{\"w\\u001b[2J\\u202e\\u009b\u00e9\":1}");
  EXPECT_TRUE(nlohmann::json::parse(text).contains(name));
}

TEST(WithNamesTest, WithNames_AnErrorThatNamesNothing_GetsWhatTheCommandLineNames) {
  const absl::Status lost = MakeError(Reason::kFileMissing, "x");
  EXPECT_EQ(NextActionOf(WithNames(lost, "demo@7", "/ckpt")),
            "Run `cairn verify demo@7 --root /ckpt`, which names all that is damaged; load an earlier step.");
  EXPECT_EQ(NextActionOf(WithNames(lost, "demo")),
            "Run `cairn verify demo@STEP --root ROOT`, which names all that is damaged; load an earlier step.");
  EXPECT_EQ(NextActionOf(WithNames(MakeError(Reason::kTimedOut, "x"), "demo")),
            "`cairn status demo` says how it goes on.");
  EXPECT_TRUE(WithNames(absl::OkStatus(), "demo").ok());
}

TEST(WithNamesTest, WithNames_AJobInCapitals_IsMeantInLowerCase) {
  const absl::Status bad = MakeError(Reason::kBadJobName, "x");
  EXPECT_EQ(NextActionOf(WithNames(bad, "Op@Paper", "/ckpt")), "Did you mean op@Paper?");
  EXPECT_EQ(NextActionOf(WithNames(bad, "Team/Op")), "Did you mean team/op?");
  EXPECT_EQ(NextActionOf(WithNames(bad, "Bad Name")), NextActionOf(bad));
  const absl::Status own = MakeError(Reason::kBadJobName, "x", {{"next", "Give the job alone."}});
  EXPECT_EQ(NextActionOf(WithNames(own, "demo@5")), "Give the job alone.");
}

TEST(WithNamesTest, WithNames_ARootWasGiven_ItsCommandsReadThatRoot) {
  const absl::Status absent = WithNames(MakeError(Reason::kNotCommitted, "x"), "demo@7", "/ckpt");
  EXPECT_EQ(NextActionOf(absent),
            "`cairn list demo --root /ckpt` shows the committed steps; a job that has none yet starts without a load.");
  EXPECT_EQ(MetadataOf(absent).at("step"), "7");
  EXPECT_EQ(ReasonOf(absent), Reason::kNotCommitted);
  const absl::Status own = MakeError(Reason::kNotCommitted, "x", {{"next", "Look with `cairn show demo`."}});
  EXPECT_EQ(NextActionOf(WithNames(own, "demo", "/ckpt")), "Look with `cairn show demo --root /ckpt`.");
  EXPECT_EQ(NextActionOf(WithNames(own, "demo", "/it's; here")),
            "Look with `cairn show demo --root '/it'\\''s; here'`.");
  const char* others = "`cairn verify a@1 --root /x`, `cairn up`, `cairn show a --root /y`, `cairn list";
  const absl::Status several = MakeError(Reason::kNotCommitted, "x", {{"next", others}});
  EXPECT_EQ(NextActionOf(WithNames(several, "demo", "/ckpt")), others);
}

TEST(WithNamesTest, WithNames_TheRootLiesWithinAnotherOne_SaysWhich) {
  const std::filesystem::path root = std::filesystem::canonical(testing::TempDir()) / "within";
  std::filesystem::create_directories(root / ".cairn");
  std::ofstream(root / ".cairn/epoch") << "epoch 1";
  std::filesystem::create_directories(root / "team/demo");
  const absl::Status absent = MakeError(Reason::kNotCommitted, "x");
  for (const char* below : {"team/demo", "team/demo/", "team"}) {
    const std::string given = (root / below).string();
    EXPECT_EQ(NextActionOf(WithNames(absent, "team/demo", given)),
              absl::StrCat("Give --root ", root.string(), ": ", given, " lies within that root."));
  }
  EXPECT_NE(NextActionOf(WithNames(absent, "demo", root.string())).find("`cairn list demo --root"), std::string::npos);
}

TEST(WithNamesTest, WithNames_WhatTheErrorNames_Stays) {
  const absl::Status late = MakeError(Reason::kTimedOut, "x", {{"job", "other"}, {"step", "3"}});
  EXPECT_EQ(MetadataOf(WithNames(late, "demo@7")).at("job"), "other");
  EXPECT_EQ(MetadataOf(WithNames(late, "demo@7")).at("step"), "3");
  EXPECT_EQ(WithNames(late, "No Job"), late);
}

TEST(CheckJobArgumentTest, CheckJobArgument_ACheckpoint_SaysWhichCommandTakesIt) {
  EXPECT_TRUE(CheckJobArgument("team/demo").ok());
  for (const char* text : {"train@10", "train@latest", "train@paper"}) {
    const absl::Status status = CheckJobArgument(text);
    EXPECT_EQ(ReasonOf(status), Reason::kBadJobName);
    EXPECT_EQ(NextActionOf(status), absl::StrCat("Give the job alone, train; `cairn show ", text, "` shows the step."));
  }
  EXPECT_EQ(NextActionOf(CheckJobArgument("Train@10")), "Choose another job name.");
}

TEST(ErrorToJsonTest, ErrorToJson_AnyError_HasTheFourKeys) {
  const auto json = ErrorToJson(MakeError(Reason::kNoSpace, "disk full", {{"rank", "3"}}));
  EXPECT_EQ(json.dump(),
            R"({"code":"RESOURCE_EXHAUSTED","reason":"NO_SPACE","message":"disk full","metadata":{"rank":"3"}})");
}

}  // namespace
}  // namespace cairn::cli

#include "common/status/reason.h"

#include <gtest/gtest.h>

#include <set>

namespace cairn {
namespace {

TEST(ReasonTableTest, ReasonTable_AllRows_StandInTheOrderOfTheEnumAndAreComplete) {
  std::set<std::string_view> names;
  for (size_t i = 0; i < ReasonTable().size(); ++i) {
    const ReasonInfo& info = ReasonTable()[i];
    EXPECT_EQ(static_cast<size_t>(info.reason), i) << info.name;
    EXPECT_TRUE(names.insert(info.name).second) << info.name;
    EXPECT_NE(info.code, absl::StatusCode::kOk);
    EXPECT_TRUE(info.meaning.ends_with('.')) << info.name;
    EXPECT_EQ(info.next_action.empty(), info.reason == Reason::kBadRequest) << info.name;
    EXPECT_TRUE(info.next_action.empty() || info.next_action.ends_with('.')) << info.name;
    EXPECT_EQ(ReasonFromName(info.name), info.reason);
  }
  EXPECT_EQ(static_cast<size_t>(Reason::kOutputExists) + 1, ReasonTable().size());
}

TEST(MakeErrorTest, MakeError_AnyReason_CarriesCodeReasonMessageAndMetadata) {
  const absl::Status status =
      MakeError(Reason::kStepCommitted, "demo@7 is committed", {{"job", "demo"}, {"step", "7"}});
  EXPECT_EQ(status.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(status.message(), "demo@7 is committed");
  EXPECT_EQ(ReasonOf(status), Reason::kStepCommitted);
  EXPECT_EQ(MetadataOf(status).at("step"), "7");
}

TEST(MakeErrorTest, MakeError_SameMetadata_GivesEqualStatuses) {
  const auto make = [] {
    return MakeError(Reason::kRankLate, "late", {{"job", "demo"}, {"step", "7"}, {"rank", "3"}, {"phase", "staging"}});
  };
  for (int i = 0; i < 100; ++i) ASSERT_EQ(make(), make());
}

TEST(MakeErrorTest, MakeError_LongTextAndMetadata_AreCutAtCharacterBorders) {
  std::string text(511, 'x');
  text += "\u00e9";  // two bytes, of which one would fit
  const absl::Status status = MakeError(Reason::kBadName, text, {{"a", std::string(5000, 'y')}, {"b", "lost"}});
  EXPECT_EQ(status.message().size(), 511u);
  EXPECT_EQ(MetadataOf(status).at("a").size(), 1023u);
  EXPECT_FALSE(MetadataOf(status).contains("b"));
}

// The name of a tensor in anybody's file, for example.
TEST(MakeErrorTest, MakeError_WhatATerminalWouldObey_IsSpelled) {
  const absl::Status status = MakeError(Reason::kBadName, "no\nname: \033[31m\xff", {{"tensor", "\033c"}});
  EXPECT_EQ(status.message(), "no\nname: \\x1b[31m\\xff");
  EXPECT_EQ(MetadataOf(status).at("tensor"), "\\x1bc");
  EXPECT_EQ(MakeError(Reason::kBadName, std::string(2000, '\033')).message().size(), 512u);
}

TEST(AnnotateTest, Annotate_AnError_KeepsReasonAndAddsMetadata) {
  const absl::Status status =
      Annotate(MakeError(Reason::kNoSpace, "disk full", {{"file", "f"}}), "rank 3", {{"rank", "3"}});
  EXPECT_EQ(status.message(), "rank 3: disk full");
  EXPECT_EQ(ReasonOf(status), Reason::kNoSpace);
  EXPECT_EQ(MetadataOf(status).at("file"), "f");
  EXPECT_EQ(MetadataOf(status).at("rank"), "3");
  EXPECT_TRUE(Annotate(absl::OkStatus(), "x").ok());
  EXPECT_EQ(ReasonOf(absl::InternalError("foreign")), std::nullopt);
}

TEST(WithMetadataTest, WithMetadata_SomeKeysAreThere_AddsWhatIsAbsent) {
  const absl::Status status =
      WithMetadata(MakeError(Reason::kNoSpace, "disk full", {{"file", "f"}}), {{"file", "other"}, {"rank", "3"}});
  EXPECT_EQ(status.message(), "disk full");
  EXPECT_EQ(MetadataOf(status), (std::map<std::string, std::string>{{"file", "f"}, {"rank", "3"}}));
  EXPECT_TRUE(WithMetadata(absl::OkStatus(), {{"rank", "3"}}).ok());
}

TEST(NextActionOfTest, NextActionOf_Commands_NameTheCheckpointUnlessTheMakerKnowsBetter) {
  const ErrorMetadata all = {{"job", "demo"}, {"step", "7"}, {"root", "/ckpt"}};
  EXPECT_NE(NextActionOf(MakeError(Reason::kManifestCorrupt, "x", all)).find("`cairn repair demo@7 --root /ckpt`"),
            std::string::npos);
  EXPECT_NE(NextActionOf(MakeError(Reason::kManifestCorrupt, "x")).find("`cairn repair JOB@STEP --root ROOT`"),
            std::string::npos);
  EXPECT_NE(NextActionOf(MakeError(Reason::kManifestCorrupt, "x", {{"job", "demo"}})).find("`cairn repair demo@STEP"),
            std::string::npos);
  EXPECT_NE(NextActionOf(MakeError(Reason::kTimedOut, "x", {{"job", "demo"}})).find("`cairn status demo`"),
            std::string::npos);
  const ErrorMetadata odd_root = {{"job", "demo"}, {"step", "7"}, {"root", "/my checkpoints"}};
  EXPECT_NE(NextActionOf(MakeError(Reason::kManifestCorrupt, "x", odd_root)).find("--root '/my checkpoints'`"),
            std::string::npos);
  EXPECT_EQ(NextActionOf(MakeError(Reason::kTimedOut, "x", {{"next", "Wait."}})), "Wait.");
  EXPECT_EQ(NextActionOf(absl::InternalError("foreign")), "");
  EXPECT_EQ(NextActionOf(absl::OkStatus()), "");
}

// A message that names a command which does not exist would leave its reader helpless.
TEST(ReasonTableTest, ReasonTable_NextActions_NameCommandsThatExist) {
  const std::set<std::string> commands = {"up",    "run",    "down",      "save",   "status", "list",
                                          "show",  "verify", "repair",    "delete", "prune",  "pin",
                                          "unpin", "untag",  "retention", "jobs",   "doctor"};
  for (const ReasonInfo& info : ReasonTable()) {
    const std::string text(info.next_action);
    for (size_t at = text.find("`cairn "); at != std::string::npos; at = text.find("`cairn ", at + 1)) {
      const size_t begin = at + 7;
      EXPECT_TRUE(commands.contains(text.substr(begin, text.find_first_of(" `", begin) - begin))) << text;
    }
  }
}

TEST(JoinRanksTest, JoinRanks_ManyRanks_CapsAtEight) {
  EXPECT_EQ(JoinRanks(std::vector<int>{4}), "4");
  EXPECT_EQ(JoinRanks(std::vector<int>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}), "0, 1, 2, 3, 4, 5, 6, 7 and 2 more");
}

}  // namespace
}  // namespace cairn

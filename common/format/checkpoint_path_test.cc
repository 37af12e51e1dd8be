#include "common/format/checkpoint_path.h"

#include <gtest/gtest.h>

#include "common/status/reason.h"

namespace cairn {
namespace {

TEST(CheckJobNameTest, CheckJobName_GoodAndBadNames_AreToldApart) {
  for (const char* job : {"demo", "team/llama-3.1_70b", "0", "a/123456789012x", "1234567890123", "12345678901"}) {
    EXPECT_TRUE(CheckJobName(job).ok()) << job;
  }
  for (std::string_view job :
       {std::string_view(""), std::string_view("/a"), std::string_view("a/"), std::string_view("a//b"),
        std::string_view("A"), std::string_view("../x"), std::string_view(".cairn"), std::string_view("-a"),
        std::string_view("a b"), std::string_view("a\0", 2), std::string_view("a/000000000042"),
        std::string_view("\xc3\xa9")}) {
    EXPECT_TRUE(HasReason(CheckJobName(job), Reason::kBadJobName)) << job;
  }
  EXPECT_FALSE(CheckJobName(std::string(201, 'a')).ok());
}

TEST(CheckpointPathTest, CheckpointPath_EachName_HasItsForm) {
  EXPECT_EQ(AttemptDirectory("a/b", 42, 1), "a/b/000000000042/0001");
  EXPECT_EQ(OutcomePath("a/b", 42, 1), "a/b/000000000042/0001.verdict");
  EXPECT_EQ(BinName(3, 1), "rank00003-bin01");
  EXPECT_EQ(BinName(3, 1, 1), "rank00003-bin01-part2");
  EXPECT_EQ(ParseStepName(StepName(kMaxStep)), kMaxStep);
  EXPECT_EQ(ParseStepName("42"), std::nullopt);
  EXPECT_EQ(ParseStepName("+00000000042"), std::nullopt);
  EXPECT_EQ(ParseOutcomeName("0007.verdict"), 7u);
  EXPECT_EQ(ParseOutcomeName("0000.verdict"), std::nullopt);
  EXPECT_EQ(ParseAttemptName("0007.verdict"), std::nullopt);
}

TEST(ParseCheckpointNameTest, ParseCheckpointName_EachForm_IsReadOrRefused) {
  EXPECT_EQ(ParseCheckpointName("a/b@7")->step, 7);
  EXPECT_EQ(ParseCheckpointName("a/b")->step, std::nullopt);
  EXPECT_FALSE(ParseCheckpointName("a/b")->latest);
  EXPECT_EQ(ParseCheckpointName("a/b@latest")->step, std::nullopt);
  EXPECT_TRUE(ParseCheckpointName("a/b@latest")->latest);
  EXPECT_EQ(ParseCheckpointName("a/b@paper-2.1_x")->tag, "paper-2.1_x");
  EXPECT_EQ(ParseCheckpointName("a/b@paper")->step, std::nullopt);
  EXPECT_EQ(ParseCheckpointName("a/b@latest")->tag, "");
  EXPECT_EQ(ParseCheckpointName("a/b@7")->tag, "");
  for (const char* text : {"a@", "a@-1", "a@7x", "a@1234567890123", "a@1@2", "a@x/y", "a@.x", "a@x@y"}) {
    EXPECT_TRUE(HasReason(ParseCheckpointName(text).status(), Reason::kBadStep)) << text;
  }
  EXPECT_TRUE(HasReason(ParseCheckpointName("a@" + std::string(65, 'x')).status(), Reason::kBadStep));
  EXPECT_TRUE(HasReason(ParseCheckpointName("@1").status(), Reason::kBadJobName));
  EXPECT_EQ(NextActionOf(ParseCheckpointName("a/b:60").status()), "A step stands behind an @: a/b@60.");
  EXPECT_EQ(NextActionOf(ParseCheckpointName("A:60").status()), "Choose another job name.");
}

TEST(CheckTagTest, CheckTag_GoodAndBadNames_AreToldApart) {
  for (const char* tag : {"best", "v1.0", "A", "Latest", "a-b_c.d"}) EXPECT_TRUE(CheckTag(tag).ok()) << tag;
  EXPECT_TRUE(CheckTag(std::string(64, 'x')).ok());
  for (const char* tag : {"", "latest", "1best", "-x", ".x", "a b", "a/b", "a@b", "gr\xc3\xb6", "a\nb"}) {
    EXPECT_TRUE(HasReason(CheckTag(tag), Reason::kBadRequest)) << tag;
  }
  EXPECT_FALSE(CheckTag(std::string(65, 'x')).ok());
}

TEST(CheckTagTest, ParseTagName_WhatTagPathNames_ComesBack) {
  EXPECT_EQ(TagPath("demo", 7, "best"), "demo/000000000007/best.tag");
  EXPECT_EQ(ParseTagName("best.tag"), "best");
  EXPECT_EQ(ParseTagName("v1.tag.tag"), "v1.tag");
  for (const char* name : {"best", ".tag", "latest.tag", "0001.tag", ".best.tag", "pinned", "0001.verdict"}) {
    EXPECT_EQ(ParseTagName(name), std::nullopt) << name;
  }
}

}  // namespace
}  // namespace cairn

#include "common/process/log.h"

#include <gtest/gtest.h>

#include <string>

namespace cairn {
namespace {

// Returns what Log writes for one field, from its key on.
std::string Logged(const std::string& value) {
  ::testing::internal::CaptureStderr();
  Log(LogLevel::kInfo, "seen", {{"what", value}});
  const std::string line = ::testing::internal::GetCapturedStderr();
  return line.substr(line.find("what="));
}

TEST(LogTest, Log_PlainValue_StandsAsItIs) { EXPECT_EQ(Logged("/a/b-1.bin"), "what=/a/b-1.bin\n"); }

TEST(LogTest, Log_BlanksAndQuotes_AreQuoted) {
  EXPECT_EQ(Logged(""), "what=\"\"\n");
  EXPECT_EQ(Logged("a b=\"c\\"), "what=\"a b=\\\"c\\\\\"\n");
  EXPECT_EQ(Logged("caf\u00e9"), "what=\"caf\u00e9\"\n");
}

TEST(LogTest, Log_ValueOfManyLines_IsOneLine) { EXPECT_EQ(Logged("a\nb\tc"), "what=\"a b c\"\n"); }

TEST(LogTest, Log_WhatATerminalWouldObey_IsSpelled) {
  EXPECT_EQ(Logged("\033[2J"), "what=\"\\x1b[2J\"\n");
  EXPECT_EQ(Logged("\xff\r"), "what=\"\\xff\\x0d\"\n");
}

TEST(LogTest, Log_EventOfADecision_IsWrittenAsAnyOther) {
  const LogEvent event{LogLevel::kWarn, "save_state", {{"job", "demo"}, {"step", 7}, {"error", "a b"}}};
  EXPECT_EQ(event.Text(), "warn event=save_state job=demo step=7 error=\"a b\"");
  ::testing::internal::CaptureStderr();
  Log(event);
  const std::string line = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(line.substr(line.find("Z ") + 2), event.Text() + "\n");
}

}  // namespace
}  // namespace cairn

#include "common/format/json_syntax.h"

#include <gtest/gtest.h>

#include <string>

namespace cairn {
namespace {

TEST(JsonSyntaxTest, Json_OfAnyKind_IsNoError) {
  for (const char* text : {"{}", "[1, -2.5e3, \"a\\u00e9\", null, true]", " 7 ", "\"\"", "{\"a\": {\"a\": []}}"}) {
    EXPECT_EQ(JsonSyntaxError(text), std::nullopt) << text;
  }
}

TEST(JsonSyntaxTest, Json_Broken_LineAndColumnAreNamed) {
  EXPECT_EQ(JsonSyntaxError("{\n \"a\": 1,\n \"b\": [1, 2,\n}\n"),
            "line 4, column 1: unexpected '}'; expected '[', '{', or a literal");
  EXPECT_EQ(JsonSyntaxError("{\"a\": 1"), "line 1, column 8: unexpected end of input; expected '}'");
  EXPECT_EQ(JsonSyntaxError("[1]\n[2]"), "line 2, column 1: unexpected '['; expected end of input");
}

TEST(JsonSyntaxTest, Text_Empty_IsAnError) {
  const auto error = JsonSyntaxError("");
  ASSERT_TRUE(error.has_value());
  EXPECT_NE(error->find("unexpected end of input"), error->npos) << *error;
}

// The message goes to a terminal.
TEST(JsonSyntaxTest, Text_OfControlsAndLongTokens_MessageIsShortAndPrintable) {
  for (const std::string& text :
       {std::string("[\"\x1b[31m"), std::string("[\"\xff\xfe\"]"), "[\"" + std::string(100'000, 'x')}) {
    const auto error = JsonSyntaxError(text);
    ASSERT_TRUE(error.has_value());
    EXPECT_LE(error->size(), 210u);
    for (const char c : *error) EXPECT_TRUE(c >= ' ' && c <= '~') << *error;
  }
}

TEST(JsonSyntaxTest, Text_NestedAMillionTimes_NeedsNoStack) {
  EXPECT_NE(JsonSyntaxError(std::string(1'000'000, '[')), std::nullopt);
}

}  // namespace
}  // namespace cairn

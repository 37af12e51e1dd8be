#include "foreign/read/pickle/bounded_json.h"

#include <gtest/gtest.h>

#include <string>

namespace cairn {
namespace {

std::string Nested(int levels) {
  const auto count = static_cast<size_t>(levels);
  return std::string(count, '[') + std::string(count, ']');
}

TEST(BoundedJsonTest, ParseBoundedJson_IsAsDeepAsAllowed_IsTheValue) {
  EXPECT_EQ(ParseBoundedJson(R"({"a": [1, {"b": null}], "c": "[[["})"),
            nlohmann::json({{"a", {1, {{"b", nullptr}}}}, {"c", "[[["}}));
  EXPECT_EQ(ParseBoundedJson(Nested(100)).dump(), Nested(100));
}

TEST(BoundedJsonTest, ParseBoundedJson_IsDeeper_IsDiscarded) {
  EXPECT_TRUE(ParseBoundedJson(Nested(102)).is_discarded());
  EXPECT_TRUE(ParseBoundedJson(R"({"x": )" + Nested(450'000) + "}").is_discarded());
  EXPECT_TRUE(ParseBoundedJson("[1, " + Nested(450'000) + ", 2]").is_discarded());
}

TEST(BoundedJsonTest, ParseBoundedJson_IsNoJson_IsDiscarded) {
  for (const char* text : {"", "{", "[1,]", "{\"a\" 1}", "1 2"}) {
    EXPECT_TRUE(ParseBoundedJson(text).is_discarded()) << text;
  }
}

}  // namespace
}  // namespace cairn

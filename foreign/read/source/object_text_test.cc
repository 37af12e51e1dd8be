#include "foreign/read/source/object_text.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <random>
#include <utility>

namespace cairn {
namespace {

std::string Json(std::string_view text) { return "\x01" + std::string(text); }

// What Python 3.11 prints for these.
TEST(ObjectTextTest, ObjectFloat_AnyMagnitude_IsPythonsRepr) {
  const std::pair<double, const char*> kCases[] = {{0.1, "0.1"},
                                                   {0.10000000000000001, "0.1"},
                                                   {0.0, "0.0"},
                                                   {-0.0, "-0.0"},
                                                   {1.0, "1.0"},
                                                   {-2.5, "-2.5"},
                                                   {100.0, "100.0"},
                                                   {123456.789, "123456.789"},
                                                   {0.0001, "0.0001"},
                                                   {0.00012345, "0.00012345"},
                                                   {0.00001, "1e-05"},
                                                   {1.25e-7, "1.25e-07"},
                                                   {9999999999999998.0, "9999999999999998.0"},
                                                   {1e15, "1000000000000000.0"},
                                                   {1e16, "1e+16"},
                                                   {1.2345e22, "1.2345e+22"},
                                                   {1e22, "1e+22"},
                                                   {5e-324, "5e-324"},
                                                   {1.7976931348623157e308, "1.7976931348623157e+308"},
                                                   {2.2250738585072014e-308, "2.2250738585072014e-308"},
                                                   {1.0 / 3.0, "0.3333333333333333"},
                                                   {2.0 / 3.0, "0.6666666666666666"},
                                                   {0.9990000000000001, "0.9990000000000001"},
                                                   {std::numeric_limits<double>::infinity(), "Infinity"},
                                                   {-std::numeric_limits<double>::infinity(), "-Infinity"},
                                                   {std::numeric_limits<double>::quiet_NaN(), "NaN"}};
  for (const auto& [number, text] : kCases) EXPECT_EQ(ObjectFloat(number), text);
}

TEST(ObjectTextTest, ObjectFloat_RandomBits_ReadAsTheSameNumber) {
  const uint32_t seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  for (int i = 0; i < 20'000; ++i) {
    const auto number = std::bit_cast<double>(random());
    if (!std::isfinite(number)) continue;
    const std::string text = ObjectFloat(number);
    EXPECT_EQ(std::bit_cast<uint64_t>(std::strtod(text.c_str(), nullptr)), std::bit_cast<uint64_t>(number)) << text;
    EXPECT_NE(text.find_first_of(".e"), std::string::npos) << text << " reads as an int";
  }
}

TEST(ObjectTextTest, CanonicalObject_OtherSpellingsOfOneValue_AreTheSame) {
  EXPECT_EQ(CanonicalObject(Json(R"({"lr": 0.10000000000000001, "n":[ 1e0,-1E-3 ]})")),
            Json(R"({"lr":0.1,"n":[1.0,-0.001]})"));
  EXPECT_EQ(CanonicalObject(Json(R"("a\u000ab\u001F")")), Json(R"("a\nb\u001f")"));
}

TEST(ObjectTextTest, CanonicalObject_OtherValues_StayAsTheyAre) {
  for (const char* text :
       {R"({"lr":0.1,"betas":{"$cairn":"tuple","value":[0.9,0.999]},"on":true,"off":false,"no":null})",
        R"(["0.10000000000000001 \" 1E5","\\u000a","é","\u00e9"])", "340282366920938463463374607431768211455", "-7",
        "1e999", "[NaN,-Infinity,Infinity]", R"("not closed 1.0)", R"("ends in \)", "[1.0.0,-]", "\"\\u00"}) {
    EXPECT_EQ(CanonicalObject(Json(text)), Json(text));
  }
  const std::string raw("\0 1e0 \"", 7);
  EXPECT_EQ(CanonicalObject(raw), raw);
  EXPECT_EQ(CanonicalObject(""), "");
}

TEST(ObjectTextTest, AppendObjectString_ControlCharacters_AreEscapedAsPythonDoes) {
  std::string json;
  AppendObjectString(std::string("\b\t\n\f\r\0\x1f\"\\\x7f\xc3\xa9", 12), json);
  EXPECT_EQ(json, "\"\\b\\t\\n\\f\\r\\u0000\\u001f\\\"\\\\\x7f\xc3\xa9\"");
}

}  // namespace
}  // namespace cairn

#include "foreign/write/torch/object_value.h"

#include <gtest/gtest.h>

#include <cmath>
#include <utility>

#include "common/status/reason.h"

namespace cairn {
namespace {

using namespace std::string_literals;
using Kind = ObjectValue::Kind;

ObjectValue Read(std::string bytes) {
  auto value = ReadObjectValue(bytes, "x");
  EXPECT_TRUE(value.ok()) << value.status();
  return value.ok() ? *std::move(value) : ObjectValue();
}

TEST(ObjectValueTest, ReadObjectValue_JsonOfPython_KeepsWhatJsonLacks) {
  const ObjectValue value =
      Read("\x01[NaN,-Infinity,1.0,1,-340282366920938463463374607431768211456,\"\\ud83d\\ude00\\u0001\\n\",null,true]");
  ASSERT_EQ(value.items.size(), 8u);
  EXPECT_TRUE(std::isnan(value.items[0].number));
  EXPECT_EQ(value.items[1].number, -HUGE_VAL);
  EXPECT_EQ(value.items[2].kind, Kind::kFloat);
  EXPECT_EQ(value.items[3].kind, Kind::kInt);
  EXPECT_EQ(value.items[4].text, "-340282366920938463463374607431768211456");
  EXPECT_EQ(value.items[5].text, "\xf0\x9f\x98\x80\x01\n");
  EXPECT_EQ(value.items[6].kind, Kind::kNone);
  EXPECT_TRUE(value.items[7].boolean);
}

TEST(ObjectValueTest, ReadObjectValue_TaggedValues_BecomeWhatTheyWere) {
  const ObjectValue value = Read(
      "\x02[{\"$cairn\":\"tuple\",\"value\":[1]},{\"$cairn\":\"bytes\",\"value\":\"AP8=\"},"
      "{\"$cairn\":\"dict\",\"value\":[[1,\"a\"]]},{\"$cairn\":\"array\",\"value\":[\"<i2\",[2],\"AQACAA==\"]}]");
  ASSERT_EQ(value.items.size(), 4u);
  EXPECT_EQ(value.items[0].kind, Kind::kTuple);
  EXPECT_EQ(value.items[1].text, "\0\xff"s);
  EXPECT_EQ(value.items[2].kind, Kind::kDict);
  EXPECT_EQ(value.items[2].items[1].text, "a");
  EXPECT_EQ(value.items[3].dtype, "<i2");
  EXPECT_EQ(value.items[3].shape, Shape{2});
  EXPECT_EQ(value.items[3].text, "\1\0\2\0"s);
  EXPECT_EQ(FindOpaque(value), nullptr);
}

TEST(ObjectValueTest, ReadObjectValue_DictOfAClassOfCollections_IsADict) {
  const ObjectValue value = Read(
      "\x03{\"$cairn\":\"mapping\",\"value\":[\"collections.defaultdict\",\"list\",[[\"b\",1],[2,{\"$cairn\":"
      "\"mapping\",\"value\":[\"collections.Counter\",null,[]]}]]]}");
  ASSERT_EQ(value.kind, Kind::kDict);
  ASSERT_EQ(value.items.size(), 4u);
  EXPECT_EQ(value.items[0].text, "b");
  EXPECT_EQ(value.items[2].kind, Kind::kInt);
  EXPECT_EQ(value.items[3].kind, Kind::kDict);
}

TEST(ObjectValueTest, ReadObjectValue_TagInUntaggedJson_IsADict) {
  EXPECT_EQ(Read("\x01{\"$cairn\":\"tuple\",\"value\":[1]}").kind, Kind::kDict);
}

TEST(ObjectValueTest, FindOpaque_ClassesWithinAValue_AreFound) {
  const ObjectValue opaque = Read("\x02{\"a\":[{\"$cairn\":\"opaque\",\"value\":\"m.C\"}]}");
  ASSERT_NE(FindOpaque(opaque), nullptr);
  EXPECT_EQ(FindOpaque(opaque)->text, "m.C");
  const ObjectValue user = Read("\x02{\"$cairn\":\"user\",\"value\":[\"mine\",\"AA==\"]}");
  ASSERT_NE(FindOpaque(user), nullptr);
  EXPECT_EQ(FindOpaque(user)->text, "mine");
}

TEST(ObjectValueTest, ReadObjectValue_TensorOfTorch_HasItsElements) {
  // The bytes are "int16 1 2\n" and two elements.
  const ObjectValue value = Read("\x02{\"$cairn\":\"user\",\"value\":[\"torch.Tensor\",\"aW50MTYgMSAyCgEAAgA=\"]}");
  EXPECT_EQ(value.kind, Kind::kTensor);
  EXPECT_EQ(value.dtype, "int16");
  EXPECT_EQ(value.shape, (Shape{1, 2}));
  EXPECT_EQ(value.text, "\1\0\2\0"s);
  EXPECT_EQ(FindOpaque(value), nullptr);
}

TEST(ObjectValueTest, ReadObjectValue_WhatIsNoValue_IsRefused) {
  for (const std::string& text :
       {"\x01"s, "\x01[1"s, "\x01[1]]"s, "\x01{\"a\"}"s, "\x01\"\\ud83d\""s, "\x01-"s,
        "\x01"
        "1."s,
        "\x01tru"s, "\x02{\"$cairn\":\"later\",\"value\":1}"s, "\x02{\"$cairn\":\"bytes\",\"value\":\"*\"}"s,
        "\x03{\"$cairn\":\"mapping\",\"value\":[\"collections.Counter\",null]}"s,
        "\x03{\"$cairn\":\"mapping\",\"value\":[\"collections.Counter\",null,{}]}"s,
        "\x02{\"$cairn\":\"user\",\"value\":[\"torch.Tensor\",\"aW50MTYgMSAzCgEAAgA=\"]}"s,
        "\x01"s + std::string(100'000, '[')}) {
    EXPECT_TRUE(HasReason(ReadObjectValue(text, "x").status(), Reason::kChecksumMismatch)) << text.substr(0, 20);
  }
  EXPECT_TRUE(HasReason(ReadObjectValue("", "x").status(), Reason::kFormatTooNew));
  EXPECT_TRUE(HasReason(ReadObjectValue("\x04", "x").status(), Reason::kFormatTooNew));
}

}  // namespace
}  // namespace cairn

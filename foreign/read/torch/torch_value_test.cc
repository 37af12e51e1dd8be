#include "foreign/read/torch/torch_value.h"

#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "common/status/reason.h"
#include "foreign/read/testing/pickle_writer.h"

namespace cairn {
namespace {

using pickle_writer::Attributes;
using pickle_writer::Bool;
using pickle_writer::Call;
using pickle_writer::Dict;
using pickle_writer::Global;
using pickle_writer::Int;
using pickle_writer::List;
using pickle_writer::LittleEndian;
using pickle_writer::None;
using pickle_writer::Object;
using pickle_writer::Persistent;
using pickle_writer::Pickle;
using pickle_writer::Text;
using pickle_writer::Tuple;

// The first byte of an object: raw bytes, JSON, JSON with marks. python/cairn/_state/objects.py has them too.
const std::string kRaw("\0", 1), kJson("\1", 1), kTagged("\2", 1);

std::string Bytes(const std::string& bytes) { return "B" + LittleEndian(bytes.size(), 4) + bytes; }
std::string Float(double number) {
  uint64_t bits = 0;
  static_assert(sizeof bits == sizeof number);
  std::memcpy(&bits, &number, sizeof bits);
  std::string big_endian = LittleEndian(bits, 8);
  return "G" + std::string(big_endian.rbegin(), big_endian.rend());
}

absl::StatusOr<std::string> Encode(const std::string& value) {
  const std::string pickle = Pickle(value);
  const auto document = ReadPickle(pickle, "pickle", {});
  EXPECT_TRUE(document.ok()) << document.status();
  return EncodeValue(*document, document->root(), "step");
}

void ExpectEncoded(const std::string& value, const std::string& expected) {
  const auto encoded = Encode(value);
  ASSERT_TRUE(encoded.ok()) << encoded.status();
  EXPECT_EQ(*encoded, expected);
}

TEST(TorchValueTest, Value_ThatJsonHas_IsPlainJson) {
  ExpectEncoded(None(), kJson + "null");
  ExpectEncoded(Bool(true), kJson + "true");
  ExpectEncoded(Int(-7), kJson + "-7");
  ExpectEncoded(Int(std::numeric_limits<int64_t>::min()), kJson + "-9223372036854775808");
  ExpectEncoded(List({Int(1), Text("b"), List({})}), kJson + R"([1,"b",[]])");
  ExpectEncoded(Attributes({{"a", Int(1)}, {"b", Attributes({})}}), kJson + R"({"a":1,"b":{}})");
}

TEST(TorchValueTest, Float_Any_IsReadAsTheSameFloat) {
  ExpectEncoded(Float(1), kJson + "1.0");
  ExpectEncoded(Float(-0.0), kJson + "-0.0");
  ExpectEncoded(Float(0.1), kJson + "0.1");
  ExpectEncoded(Float(1e300), kJson + "1e+300");
  ExpectEncoded(Float(std::numeric_limits<double>::infinity()), kJson + "Infinity");
  ExpectEncoded(Float(-std::numeric_limits<double>::infinity()), kJson + "-Infinity");
  ExpectEncoded(Float(std::numeric_limits<double>::quiet_NaN()), kJson + "NaN");
}

TEST(TorchValueTest, Text_OfAnyCharacters_IsEscaped) {
  ExpectEncoded(Text("\"\\\n\x1f\xc3\xa9"), kJson + "\"\\\"\\\\\\n\\u001f\xc3\xa9\"");
}

TEST(TorchValueTest, Bytes_Alone_AreRaw) {
  ExpectEncoded(Bytes(std::string("\0\xff", 2)), kRaw + std::string("\0\xff", 2));
  ExpectEncoded(List({Bytes("abc")}), kTagged + R"([{"$cairn":"bytes","value":"YWJj"}])");
}

TEST(TorchValueTest, Tuple_AndDictOfOtherKeys_AreMarked) {
  ExpectEncoded(Tuple({Int(1)}), kTagged + R"({"$cairn":"tuple","value":[1]})");
  ExpectEncoded(Dict({{Int(0), Text("a")}}), kTagged + R"({"$cairn":"dict","value":[[0,"a"]]})");
  // This looks like a mark, and is none.
  ExpectEncoded(Attributes({{"$cairn", Text("tuple")}}), kTagged + R"({"$cairn":"dict","value":[["$cairn","tuple"]]})");
}

TEST(TorchValueTest, Value_OfAClass_IsARecordOfWhatItWas) {
  const std::string hostile = Call(Global("os", "system"), {Text("true")});
  const auto encoded = Encode(List({hostile, Object(Global("argparse", "Namespace"), Attributes({{"lr", Int(1)}}))}));
  ASSERT_TRUE(encoded.ok()) << encoded.status();
  EXPECT_NE(encoded->find(R"({"$cairn":"opaque","value":"argparse.Namespace"})"), std::string::npos) << *encoded;
  EXPECT_NE(encoded->find("os.system"), std::string::npos) << *encoded;
  EXPECT_TRUE(HoldsOpaqueValue(*encoded));
  for (const std::string& value :
       {Global("torch", "float32"), Persistent(Text("x")), "\x8a\x09" + LittleEndian(0, 8) + "\x01"}) {
    const auto other = Encode(value);
    ASSERT_TRUE(other.ok()) << other.status();
    EXPECT_TRUE(HoldsOpaqueValue(*other)) << *other;
  }
}

TEST(TorchValueTest, HoldsOpaqueValue_TextThatLooksSo_IsNot) {
  const auto text = Encode(Tuple({Text(R"({"$cairn":"opaque","value":"x"})")}));
  ASSERT_TRUE(text.ok());
  EXPECT_FALSE(HoldsOpaqueValue(*text)) << *text;
  EXPECT_FALSE(HoldsOpaqueValue(""));
  EXPECT_FALSE(HoldsOpaqueValue(kRaw + R"({"$cairn":"opaque","value":"x"})"));
}

TEST(TorchValueTest, Value_NestedTooDeeplyOrTooOften_IsRefusedByName) {
  std::string deep = Int(1);
  for (int i = 0; i < 250; ++i) deep = List({deep});
  // Each list holds the one before it twice, by the memo.
  std::string often = Text(std::string(1000, 'x')) + "q" + std::string(1, '\0');
  std::string bomb = "(" + often;
  for (int i = 0; i < 40; ++i) {
    const char number = static_cast<char>(i), next = static_cast<char>(i + 1);
    bomb += std::string("(h") + number + "h" + number + "lq" + next;
  }
  bomb += "l";
  for (const std::string& value : {deep, bomb}) {
    const absl::Status status = Encode(value).status();
    EXPECT_EQ(ReasonOf(status), Reason::kUnsupported) << status;
    EXPECT_NE(status.message().find("step"), absl::string_view::npos) << status;
  }
}

TEST(TorchValueTest, SnapshotEntry_OfEveryType_IsItsValue) {
  const auto entry = [](const std::string& type, const std::string& value) {
    return EncodeTorchValue(R"({"type": ")" + type + R"(", "serialized_value": ")" + value + "\"}", "x");
  };
  EXPECT_EQ(*entry("int", "-12"), kJson + "-12");
  EXPECT_EQ(*entry("bool", "True"), kJson + "true");
  EXPECT_EQ(*entry("str", "a\\\"b"), kJson + "\"a\\\"b\"");
  EXPECT_EQ(*entry("bytes", "AP8="), kRaw + std::string("\0\xff", 2));
  EXPECT_EQ(*entry("float", "AAAAAAAA8D8="), kJson + "1.0");
  for (const auto& [type, value] : std::vector<std::pair<std::string, std::string>>{
           {"int", "1; x"}, {"int", "-"}, {"bool", "true"}, {"float", "AAAA"}, {"bytes", "*"}, {"object", "x"}}) {
    EXPECT_EQ(ReasonOf(entry(type, value).status()), Reason::kBadForeignFile) << type << " " << value;
  }
  EXPECT_EQ(ReasonOf(EncodeTorchValue("{\"type\": 3}", "x").status()), Reason::kBadForeignFile);
}

}  // namespace
}  // namespace cairn

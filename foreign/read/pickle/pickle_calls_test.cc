#include "foreign/read/pickle/pickle_calls.h"

#include <gtest/gtest.h>

#include <optional>
#include <string_view>
#include <vector>

namespace cairn {
namespace {

class PickleCallsTest : public testing::Test {
 protected:
  std::optional<PickleValue> Call(std::string_view module, std::string_view name, std::vector<PickleValue> arguments) {
    return calls_.Result(builder_.Global(module, name), builder_.Container(PickleKind::kTuple, arguments));
  }
  const PickleDocument& document() const { return builder_.document(); }

  PickleBuilder builder_;
  PickleCalls calls_ = PickleCalls(builder_);
};

TEST_F(PickleCallsTest, Result_AnEmptyOrderedDict_IsADictThatCanBeFilled) {
  const auto dict = Call("collections", "OrderedDict", {});
  ASSERT_TRUE(dict.has_value());
  ASSERT_EQ(dict->kind(), PickleKind::kDict);
  builder_.Extend(*dict, std::vector{builder_.Text("key"), builder_.Int(3)});
  EXPECT_EQ(document().Int(*document().Find(*dict, "key")), 3);
}

TEST_F(PickleCallsTest, Result_AnOrderedDictOfPairs_IsARecord) {
  const auto object = Call("collections", "OrderedDict", {builder_.Container(PickleKind::kList, {})});
  ASSERT_TRUE(object.has_value());
  EXPECT_EQ(object->kind(), PickleKind::kObject);
}

TEST_F(PickleCallsTest, Result_ASizeOfTorch_IsItsTuple) {
  const PickleValue tuple = builder_.Container(PickleKind::kTuple, std::vector{builder_.Int(2)});
  EXPECT_EQ(Call("torch", "Size", {tuple}), tuple);
}

TEST_F(PickleCallsTest, Result_ASizeOfAnythingElse_IsARecord) {
  const auto object = Call("torch", "Size", {builder_.Text("two")});
  ASSERT_TRUE(object.has_value());
  EXPECT_NE(document().Object(*object, "torch", "Size"), nullptr);
}

TEST_F(PickleCallsTest, Result_Latin1Text_IsItsBytes) {
  const auto bytes = Call("_codecs", "encode", {builder_.Text("z\xc2\x80\xc3\xbf"), builder_.Text("latin1")});
  ASSERT_TRUE(bytes.has_value());
  EXPECT_EQ(document().Bytes(*bytes), "z\x80\xff");
}

TEST_F(PickleCallsTest, Result_CharactersBeyondLatin1_IsNothing) {
  for (const std::string_view text : {"\xc4\x80", "\xc3", "\xc3z", "\xff"}) {
    EXPECT_EQ(Call("_codecs", "encode", {builder_.Text(text), builder_.Text("latin1")}), std::nullopt) << text;
  }
}

TEST_F(PickleCallsTest, Result_TextInAnotherEncoding_IsARecord) {
  const auto object = Call("_codecs", "encode", {builder_.Text("z"), builder_.Text("rot13")});
  ASSERT_TRUE(object.has_value());
  EXPECT_NE(document().Object(*object, "_codecs", "encode"), nullptr);
}

}  // namespace
}  // namespace cairn

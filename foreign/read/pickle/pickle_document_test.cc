#include "foreign/read/pickle/pickle_document.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "foreign/read/pickle/pickle_builder.h"

namespace cairn {
namespace {

TEST(PickleValueTest, Payload_NegativeAndLarge_ComesBackBesideItsKind) {
  for (const int64_t payload : {int64_t{-1}, int64_t{0}, (int64_t{1} << 59) - 1, -(int64_t{1} << 59)}) {
    const PickleValue value(PickleKind::kPersistent, payload);
    EXPECT_EQ(value.payload(), payload);
    EXPECT_EQ(value.kind(), PickleKind::kPersistent);
  }
}

TEST(PickleDocumentTest, Readers_AValueOfAnotherKind_GiveNothing) {
  PickleBuilder builder;
  const PickleValue text = builder.Text("text");
  const PickleValue number = builder.Int(1);
  const PickleDocument& document = builder.document();
  EXPECT_EQ(document.Int(text), std::nullopt);
  EXPECT_EQ(document.Bool(number), std::nullopt);
  EXPECT_EQ(document.Float(number), std::nullopt);
  EXPECT_EQ(document.Bytes(text), std::nullopt);
  EXPECT_EQ(document.Text(builder.Bytes("bytes")), std::nullopt);
  EXPECT_EQ(document.Global(text), std::nullopt);
  EXPECT_EQ(document.Object(text), nullptr);
  EXPECT_EQ(document.Persistent(text), std::nullopt);
  EXPECT_EQ(document.Size(text), 0);
}

TEST(PickleDocumentTest, Find_AKeyThatStandsTwice_GivesTheLastValue) {
  PickleBuilder builder;
  const PickleValue dict =
      builder.Container(PickleKind::kDict, std::vector{builder.Text("a"), builder.Int(1), builder.Text("b"),
                                                       builder.Int(2), builder.Text("a"), builder.Int(3)});
  EXPECT_EQ(builder.document().Size(dict), 3);
  EXPECT_EQ(builder.document().Int(*builder.document().Find(dict, "a")), 3);
}

TEST(PickleDocumentTest, Find_AnObject_LooksIntoItsState) {
  PickleBuilder builder;
  const PickleValue object = builder.Object(builder.Global("m", "C"), builder.Container(PickleKind::kTuple, {}));
  EXPECT_EQ(builder.document().Find(object, "x"), std::nullopt);
  builder.object(object).state = builder.Container(PickleKind::kDict, std::vector{builder.Text("x"), builder.Int(9)});
  EXPECT_EQ(builder.document().Int(*builder.document().Find(object, "x")), 9);
}

TEST(PickleDocumentTest, Elements_MoreThanAsked_GivesTheFirstOnes) {
  PickleBuilder builder;
  const std::vector<PickleValue> values = {builder.Int(1), builder.Int(2), builder.Int(3)};
  const PickleValue tuple = builder.Container(PickleKind::kTuple, values);
  EXPECT_EQ(builder.document().Elements(tuple, 2), (std::vector{values[0], values[1]}));
}

TEST(PickleDocumentTest, CopyElements_OfAListInSeveralParts_CopiesTheFirstOnes) {
  PickleBuilder builder;
  const std::vector values = {builder.Int(1), builder.Int(2), builder.Int(3)};
  const PickleValue list = builder.Container(PickleKind::kList, std::vector{values[0]});
  builder.Container(PickleKind::kTuple, values);  // keeps the list's parts apart
  builder.Extend(list, std::vector{values[1], values[2]});
  std::vector<PickleValue> two(2), four(4);
  EXPECT_EQ(builder.document().CopyElements(list, two), 2);
  EXPECT_EQ(two, (std::vector{values[0], values[1]}));
  EXPECT_EQ(builder.document().CopyElements(list, four), 3);
  EXPECT_EQ(four[2], values[2]);
  EXPECT_EQ(builder.document().CopyElements(values[0], two), 0);
}

TEST(PickleDocumentTest, Describe_AnObject_NamesItsClass) {
  PickleBuilder builder;
  const PickleValue type = builder.Global("argparse", "Namespace");
  const PickleValue rebuilt = builder.Object(builder.Global("copyreg", "_reconstructor"),
                                             builder.Container(PickleKind::kTuple, std::vector{type}));
  EXPECT_EQ(builder.document().Describe(builder.Object(type, {})), "argparse.Namespace");
  EXPECT_EQ(builder.document().Describe(rebuilt), "argparse.Namespace");
  EXPECT_EQ(builder.document().Describe(builder.Container(PickleKind::kSet, {})), "a set");
}

TEST(PickleDocumentTest, Describe_AVeryLongName_IsCut) {
  PickleBuilder builder;
  const std::string name(1000, 'x');
  EXPECT_EQ(builder.document().Describe(builder.Global("m", name)).size(), 200);
}

TEST(PickleDocumentTest, Elements_FewOfMany_TakeNoLongerThanFew) {
  PickleBuilder builder;
  const std::vector<PickleValue> zeros(1'000'000, builder.Int(0));
  const PickleValue list = builder.Container(PickleKind::kList, zeros);
  const PickleValue object = builder.Object(builder.Global("a", "b"), builder.Container(PickleKind::kTuple, zeros));
  // That is minutes if each looks at all of them.
  for (int i = 0; i < 200'000; ++i) {
    ASSERT_EQ(builder.document().Elements(list, 2).size(), 2u);
    ASSERT_EQ(builder.document().Describe(object), "a.b");
  }
  EXPECT_EQ(builder.document().Elements(list, 2'000'000).size(), zeros.size());
}

TEST(PickleDocumentTest, Find_AnObjectOfTooManyAttributes_HasNone) {
  PickleBuilder builder;
  const PickleValue key = builder.Text("size");
  for (const size_t count : {size_t{1000}, size_t{1001}}) {
    std::vector<PickleValue> pairs(2 * count, builder.Int(7));
    pairs[0] = key;
    const PickleValue dict = builder.Container(PickleKind::kDict, pairs);
    const PickleValue object = builder.Object(builder.Global("a", "b"), builder.Container(PickleKind::kTuple, {}));
    builder.object(object).state = dict;
    EXPECT_TRUE(builder.document().Find(dict, "size").has_value()) << "a dict may be large";
    EXPECT_EQ(builder.document().Find(object, "size").has_value(), count == 1000);
  }
}

}  // namespace
}  // namespace cairn

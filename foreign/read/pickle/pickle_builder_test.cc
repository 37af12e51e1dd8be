#include "foreign/read/pickle/pickle_builder.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace cairn {
namespace {

std::vector<int64_t> IntsOf(const PickleDocument& document, PickleValue container) {
  std::vector<int64_t> ints;
  document.ForEach(container, [&](PickleValue each) { ints.push_back(document.Int(each).value_or(-1)); });
  return ints;
}

TEST(PickleBuilderTest, Int_ValuesBesideTheLimitsOfAHandle_AreKept) {
  PickleBuilder builder;
  for (const int64_t value : {int64_t{0}, int64_t{-1}, (int64_t{1} << 59) - 1, int64_t{1} << 59, -(int64_t{1} << 59),
                              -(int64_t{1} << 59) - 1, INT64_MAX, INT64_MIN}) {
    EXPECT_EQ(builder.document().Int(builder.Int(value)), value);
  }
}

TEST(PickleBuilderTest, Extend_ContainersThatGrowInTurns_KeepTheirOwnValuesInOrder) {
  PickleBuilder builder;
  const auto ints = [&](std::vector<int64_t> values) {
    std::vector<PickleValue> made;
    for (const int64_t value : values) made.push_back(builder.Int(value));
    return made;
  };
  const PickleValue first = builder.Container(PickleKind::kList, {});
  const PickleValue second = builder.Container(PickleKind::kList, ints({10}));
  builder.Extend(first, ints({1, 2}));
  builder.Extend(first, ints({3}));  // just behind the last ones: the same part
  builder.Extend(second, ints({11, 12}));
  builder.Extend(first, ints({4}));
  builder.Extend(first, {});
  builder.Extend(second, ints({13}));
  EXPECT_EQ(IntsOf(builder.document(), first), (std::vector<int64_t>{1, 2, 3, 4}));
  EXPECT_EQ(IntsOf(builder.document(), second), (std::vector<int64_t>{10, 11, 12, 13}));
  EXPECT_EQ(builder.document().Size(first), 4);
}

TEST(PickleBuilderTest, Keep_TextsOfAllLengths_StayWhereTheyAre) {
  PickleBuilder builder;
  const uint64_t before = builder.memory_bytes();
  std::vector<std::string> texts;
  for (const size_t length : {0, 5, 60'000, 6'000, 70'000, 5, 65'536, 65'535, 1, 200'000, 7}) {
    texts.emplace_back(length, static_cast<char>('a' + texts.size()));
  }
  std::vector<std::string_view> kept;
  uint64_t total = 0;
  for (int round = 0; round < 5; ++round) {
    for (const std::string& text : texts) {
      kept.push_back(builder.Keep(std::string(text)));
      total += text.size();
    }
  }
  for (size_t i = 0; i < kept.size(); ++i) EXPECT_TRUE(kept[i] == texts[i % texts.size()]) << i;
  EXPECT_GE(builder.memory_bytes(), before + total);
}

TEST(PickleBuilderTest, OwnedBytes_TheGivenStringIsGone_AreStillThereAndCounted) {
  PickleBuilder builder;
  const uint64_t before = builder.memory_bytes();
  const PickleValue bytes = builder.OwnedBytes(std::string(1000, 'x'));
  EXPECT_EQ(builder.document().Bytes(bytes), std::string(1000, 'x'));
  EXPECT_GE(builder.memory_bytes(), before + 1000);
}

TEST(PickleBuilderTest, MemoryBytes_EveryKindOfValue_TakesSome) {
  PickleBuilder builder;
  uint64_t before = builder.memory_bytes();
  const auto took_some = [&] {
    const uint64_t now = builder.memory_bytes();
    return now > std::exchange(before, now);
  };
  builder.WideInt();
  EXPECT_TRUE(took_some());
  builder.Float(1.5);
  EXPECT_TRUE(took_some());
  builder.Text("text");
  EXPECT_TRUE(took_some());
  builder.Global("module", "name");
  EXPECT_TRUE(took_some());
  builder.Persistent({});
  EXPECT_TRUE(took_some());
  builder.Object({}, {});
  EXPECT_TRUE(took_some());
  builder.Container(PickleKind::kTuple, {});
  EXPECT_TRUE(took_some());
}

TEST(PickleBuilderTest, Finish_ARootAndALength_AreTheDocuments) {
  PickleBuilder builder;
  const PickleValue root = builder.Text("root");
  const PickleDocument document = std::move(builder).Finish(root, 17);
  EXPECT_EQ(document.Text(document.root()), "root");
  EXPECT_EQ(document.consumed(), 17);
}

}  // namespace
}  // namespace cairn

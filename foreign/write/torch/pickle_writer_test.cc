#include "foreign/write/torch/pickle_writer.h"

#include <gtest/gtest.h>

#include <utility>

#include "foreign/read/pickle/pickle.h"

namespace cairn {
namespace {

using namespace std::string_literals;

// pickletools.dis shows these bytes as the program of the test's comment.
TEST(PickleWriterTest, Finish_AllKindsOfValues_GivesTheGoldenBytes) {
  PickleWriter pickle;
  pickle.EmptyDict();
  pickle.Mark();
  pickle.Text("a");
  pickle.IntTuple(std::vector<int64_t>{255, 256, -1});
  pickle.Text("b");
  pickle.TorchSize(std::vector<int64_t>{1, 2, 3, 65536});
  pickle.Text("a");
  pickle.Float(0.5);
  pickle.Text("c");
  pickle.Bytes("\xff");
  pickle.Text("d");
  pickle.None();
  pickle.SetItems();
  EXPECT_EQ(std::move(pickle).Finish(),
            "\x80\x02}("
            "X\x01\0\0\0aq\0"
            "K\xff"
            "M\0\x01"
            "J\xff\xff\xff\xff\x87"
            "X\x01\0\0\0bq\x01"
            "ctorch\nSize\nq\x02"
            "(K\x01"
            "K\x02"
            "K\x03"
            "J\0\0\x01\0t\x85R"
            "h\0"
            "G\x3f\xe0\0\0\0\0\0\0"
            "X\x01\0\0\0cq\x03"
            "c_codecs\nencode\nq\x04"
            "(X\x02\0\0\0\xc3\xbf"
            "X\x06\0\0\0latin1q\x05tR"
            "X\x01\0\0\0dq\x06N"
            "u."s);
}

TEST(PickleWriterTest, Decimal_IntegersOfAnySize_GivesTheShortestTwosComplement) {
  const auto written = [](std::string_view digits) {
    PickleWriter pickle;
    pickle.Decimal(digits);
    return std::move(pickle).Finish().substr(2);
  };
  EXPECT_EQ(written("127"), "\x8a\x01\x7f."s);
  EXPECT_EQ(written("128"), "\x8a\x02\x80\0."s);
  EXPECT_EQ(written("-128"), "\x8a\x01\x80."s);
  EXPECT_EQ(written("-129"), "\x8a\x02\x7f\xff."s);
  EXPECT_EQ(written("18446744073709551616"), "\x8a\x09\0\0\0\0\0\0\0\0\x01."s);
  EXPECT_EQ(written("-18446744073709551616"), "\x8a\x09\0\0\0\0\0\0\0\0\xff."s);
}

TEST(PickleWriterTest, Text_MoreThan256Texts_RecallsTheLateOnes) {
  PickleWriter pickle;
  pickle.EmptyList();
  pickle.Mark();
  for (int round = 0; round < 2; ++round) {
    for (int i = 0; i < 300; ++i) pickle.Text("text " + std::to_string(i));
  }
  pickle.AppendItems();
  const std::string bytes = std::move(pickle).Finish();
  const auto document = ReadPickle(bytes, "test", {});
  ASSERT_TRUE(document.ok()) << document.status();
  const auto elements = document->Elements(document->root(), 1000);
  ASSERT_EQ(elements.size(), 600u);
  EXPECT_EQ(document->Text(elements[599]), "text 299");
  EXPECT_EQ(elements[599], elements[299]);
}

TEST(PickleWriterTest, Int_ValuesAtTheEdges_AreReadAsTheyWere) {
  const std::vector<int64_t> values = {0,         255, 256,       65535,    65536, INT32_MAX, int64_t{1} << 31,
                                       INT32_MIN, -1,  INT64_MAX, INT64_MIN};
  PickleWriter pickle;
  pickle.IntTuple(values);
  const std::string bytes = std::move(pickle).Finish();
  const auto document = ReadPickle(bytes, "test", {});
  ASSERT_TRUE(document.ok()) << document.status();
  std::vector<int64_t> read;
  document->ForEach(document->root(), [&](PickleValue each) { read.push_back(document->Int(each).value_or(0)); });
  EXPECT_EQ(read, values);
}

}  // namespace
}  // namespace cairn

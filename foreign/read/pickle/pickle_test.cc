#include "foreign/read/pickle/pickle.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/status/reason.h"

namespace cairn {
namespace {

using namespace std::string_literals;

absl::StatusOr<PickleDocument> Read(std::string_view bytes) { return ReadPickle(bytes, "file", {}); }

PickleDocument MustRead(std::string_view bytes) {
  auto document = Read(bytes);
  EXPECT_TRUE(document.ok()) << document.status();
  return document.ok() ? *std::move(document) : PickleDocument();
}

Reason ReasonOfReading(std::string_view bytes) {
  const auto document = Read(bytes);
  EXPECT_FALSE(document.ok());
  return ReasonOf(document.status()).value_or(Reason::kInternal);
}

// Each pickle was written by CPython's pickle.dumps(value, protocol).
TEST(PickleTest, Read_NumbersOfEveryWidth_GivesTheirValues) {
  EXPECT_EQ(MustRead("\x80\x04K\x07."s).Int(MustRead("\x80\x04K\x07."s).root()), 7);
  const std::string bytes =
      "\x80\x02(K\xffM\xff\xffJ\xfe\xff\xff\xff\x8a\x08\x00\x00\x00\x00\x00\x00\x00\x80\x8a\x09\x00\x00\x00\x00\x00\x00\x00\x00\x01t."s;
  const PickleDocument document = MustRead(bytes);
  const auto values = document.Elements(document.root(), 9);
  ASSERT_EQ(values.size(), 5);
  EXPECT_EQ(document.Int(values[0]), 255);
  EXPECT_EQ(document.Int(values[1]), 65535);
  EXPECT_EQ(document.Int(values[2]), -2);
  EXPECT_EQ(document.Int(values[3]), INT64_MIN);
  EXPECT_EQ(values[4].kind(), PickleKind::kWideInt);
  EXPECT_EQ(document.Int(values[4]), std::nullopt);
}

TEST(PickleTest, Read_FloatsAndText_GivesTheirValues) {
  const std::string bytes = "\x80\x04(G\x40\x04\x00\x00\x00\x00\x00\x00\x8c\x02\xc3\xa9\x88N\x85t."s;
  const PickleDocument document = MustRead(bytes);
  const auto values = document.Elements(document.root(), 9);
  ASSERT_EQ(values.size(), 4);
  EXPECT_EQ(document.Float(values[0]), 2.5);
  EXPECT_EQ(document.Text(values[1]), "\xc3\xa9");
  EXPECT_EQ(document.Bool(values[2]), true);
  EXPECT_EQ(document.Size(values[3]), 1);
}

TEST(PickleTest, Read_ADictFilledInSeveralBatches_HasAllPairsInOrder) {
  const std::string bytes =
      "\x80\x02}(X\x01\x00\x00\x00"
      "aK\x01u]q\x00K\x05"
      "a0(X\x01\x00\x00\x00"
      "bK\x02u."s;
  const PickleDocument document = MustRead(bytes);
  EXPECT_EQ(document.Size(document.root()), 2);
  EXPECT_EQ(document.Int(*document.Find(document.root(), "a")), 1);
  EXPECT_EQ(document.Int(*document.Find(document.root(), "b")), 2);
  EXPECT_EQ(document.Find(document.root(), "c"), std::nullopt);
}

TEST(PickleTest, Read_ASizeOfTorchAndAnOrderedDict_BecomePlainContainers) {
  const std::string bytes =
      "\x80\x02"
      "ctorch\nSize\nK\x02K\x03\x86\x85Rccollections\nOrderedDict\n)R\x86."s;
  const PickleDocument document = MustRead(bytes);
  const auto values = document.Elements(document.root(), 9);
  ASSERT_EQ(values.size(), 2);
  EXPECT_EQ(document.Size(values[0]), 2);
  EXPECT_EQ(values[1].kind(), PickleKind::kDict);
}

TEST(PickleTest, Read_LatinBytesOfProtocol2_GivesTheBytes) {
  const std::string bytes =
      "\x80\x02"
      "c_codecs\nencode\nX\x03\x00\x00\x00z\xc3\xbfX\x06\x00\x00\x00latin1\x86R."s;
  const PickleDocument document = MustRead(bytes);
  EXPECT_EQ(document.Bytes(document.root()), "z\xff");
}

TEST(PickleTest, Read_ACallOfTheSystem_IsARecordAndNothingElse) {
  const std::string bytes =
      "\x80\x02"
      "cposix\nsystem\nX\x04\x00\x00\x00true\x85R."s;
  const PickleDocument document = MustRead(bytes);
  const PickleObject* object = document.Object(document.root(), "posix", "system");
  ASSERT_NE(object, nullptr);
  EXPECT_EQ(document.Describe(document.root()), "posix.system");
  EXPECT_EQ(document.Text(document.Elements(object->arguments, 1)[0]), "true");
}

TEST(PickleTest, Read_AnObjectWithState_GivesItsAttributes) {
  const std::string bytes =
      "\x80\x04\x8c\x01m\x8c\x01"
      "C\x93)\x81}\x8c\x01xK\x09sb."s;
  const PickleDocument document = MustRead(bytes);
  EXPECT_EQ(document.Int(*document.Find(document.root(), "x")), 9);
  EXPECT_EQ(document.Describe(document.root()), "m.C");
}

TEST(PickleTest, Read_EveryPrefix_IsRefused) {
  const std::string bytes =
      "\x80\x04\x8c\x01m\x8c\x01"
      "C\x93)\x81}\x8c\x01xK\x09sb."s;
  for (size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_EQ(ReasonOfReading(std::string_view(bytes).substr(0, size)), Reason::kBadForeignFile) << size;
  }
}

TEST(PickleTest, Read_WhatTheStackDoesNotHold_IsRefused) {
  for (const std::string& bytes :
       {"\x80\x02."s, "\x80\x02\x85."s, "\x80\x02K\x01(a."s, "\x80\x02t."s, "\x80\x02h\x00."s, "\x80\x02K\x01q\xff."s,
        "\x80\x02K\x01K\x02s."s, "\x80\x02K\x01R."s, "\x80\x02}(K\x01u."s, "\x80\x02K\x01K\x01."s,
        "\x80\x02K\x01}b."s}) {
    EXPECT_EQ(ReasonOfReading(bytes), Reason::kBadForeignFile) << testing::PrintToString(bytes);
  }
}

TEST(PickleTest, Read_ALengthBeyondTheEnd_IsRefusedWithoutMemory) {
  EXPECT_EQ(ReasonOfReading("\x80\x04\x8e\xff\xff\xff\xff\xff\xff\xff\x7f."s), Reason::kBadForeignFile);
  EXPECT_EQ(ReasonOfReading("\x80\x02X\xff\xff\xff\x7f."s), Reason::kBadForeignFile);
  EXPECT_EQ(ReasonOfReading("\x80\x02\x8b\xff\xff\xff\x7f."s), Reason::kBadForeignFile);
  EXPECT_EQ(ReasonOfReading("\x80\x02K\x01r\xff\xff\xff\xff."s), Reason::kBadForeignFile);
}

TEST(PickleTest, Read_OpcodesThatReachOutside_AreRefused) {
  // Extension registries, buffers of the caller, textual persistent names, and classes of protocol 0.
  for (const std::string& bytes : {"\x80\x02\x82\x01."s, "\x80\x05\x97."s, "\x80\x02Px\n."s, "\x80\x02(im\nC\n."s}) {
    EXPECT_EQ(ReasonOfReading(bytes), Reason::kUnsupported) << testing::PrintToString(bytes);
  }
  EXPECT_EQ(ReasonOfReading("(lp0\n."s), Reason::kBadForeignFile);
  EXPECT_EQ(ReasonOfReading("\x80\x06N."s), Reason::kBadForeignFile);
}

// The input is overwritten as soon as it may be. Long texts, short ones, bytes and names of classes are still there.
TEST(PickleTest, Consume_TheInputIsGone_TheDocumentIsTheSame) {
  std::string pickle("\x80\x04]", 3);
  const auto text = [](char opcode, const std::string& content) {
    const auto size = static_cast<uint32_t>(content.size());
    std::string bytes(1, opcode);
    for (int i = 0; i < 4; ++i) bytes += static_cast<char>(size >> (8 * i));
    return bytes + content;
  };
  for (int i = 0; i < 3000; ++i) {
    const std::string number = std::to_string(i);
    pickle += text('X', number) + "a" + text('B', std::string(static_cast<size_t>(i % 4000), 'b') + number) + "a";
    pickle += "cmodule" + number + "\nname" + number + "\na";
    if (i % 1000 == 0) pickle += text('X', std::string(100'000, 'x') + number) + "a";
  }
  pickle += '.';
  const auto expected = ReadPickle(pickle, "file", {});
  ASSERT_TRUE(expected.ok()) << expected.status();
  std::string input = pickle;
  int releases = 0;
  const auto consumed = ConsumePickle(input, "file", {}, [&](size_t end) {
    ++releases;
    std::fill_n(input.begin(), end, '\xff');
  });
  ASSERT_TRUE(consumed.ok()) << consumed.status();
  EXPECT_GE(releases, 1);
  input.assign(input.size(), '\xff');
  const auto all = [](const PickleDocument& document) {
    std::vector<std::string> values;
    document.ForEach(document.root(), [&](PickleValue value) {
      values.emplace_back(document.Text(value).value_or(document.Bytes(value).value_or("")));
      values.back() += document.Global(value).value_or("");
    });
    return values;
  };
  EXPECT_EQ(all(*consumed).size(), all(*expected).size());
  EXPECT_TRUE(all(*consumed) == all(*expected));
}

TEST(PickleTest, Read_MoreValuesThanTheLimit_IsRefused) {
  std::string bytes = "\x80\x02("s;
  bytes.append(100'000, '}');
  bytes += "l.";
  const auto document = ReadPickle(bytes, "file", {.memory_bytes = 1 << 20});
  ASSERT_FALSE(document.ok());
  EXPECT_TRUE(HasReason(document.status(), Reason::kMemoryLimit));
}

// One opcode can ask for a gap in what is remembered that is as long as the file. What follows is no opcode, and would
// be met if the gap had been made.
TEST(PickleTest, Read_AGapBeyondTheLimit_IsRefusedBeforeItIsMade) {
  std::string bytes = "\x80\x04K\x07r\x00\x00\x10\x00\xff"s;
  bytes.append(size_t{2} << 20, '\0');
  PickleLimits limits;
  limits.memory_bytes = uint64_t{1} << 20;
  const auto document = ReadPickle(bytes, "file", limits);
  EXPECT_TRUE(HasReason(document.status(), Reason::kMemoryLimit)) << document.status();
}

TEST(PickleTest, Read_DeepNesting_CostsNoStack) {
  std::string bytes = "\x80\x02N"s;
  bytes.append(1'000'000, '\x85');
  bytes += '.';
  EXPECT_TRUE(Read(bytes).ok());
}

}  // namespace
}  // namespace cairn

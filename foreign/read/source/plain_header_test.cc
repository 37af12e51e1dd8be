#include "foreign/read/source/plain_header.h"

#include <gtest/gtest.h>

#include "common/status/reason.h"

namespace cairn {
namespace {

std::string FileOf(const std::string& json) {
  std::string text(8, '\0');
  for (int i = 0; i < 8; ++i) text[static_cast<size_t>(i)] = static_cast<char>(json.size() >> (8 * i));
  return text + json;
}

std::string ReasonFor(const std::string& json, uint64_t data_bytes) {
  const std::string header = FileOf(json);
  const auto parsed = ParsePlainHeader(header, header.size() + data_bytes);
  return parsed.ok() ? "" : std::string(InfoOf(ReasonOf(parsed.status()).value_or(Reason::kInternal)).name);
}

TEST(PlainHeaderTest, ParsePlainHeader_WhatIsRendered_IsParsed) {
  const std::vector<PlainTensor> tensors = {{"b\"quoted\\", DType::kBfloat16, {2, 3}, 0, 0},
                                            {"a", DType::kFloat8E4m3fn, {4}, 0, 0},
                                            {"scalar", DType::kFloat64, {}, 0, 0},
                                            {"empty", DType::kInt8, {0, 5}, 0, 0}};
  const std::string header = RenderPlainHeader(tensors);
  EXPECT_EQ(header.size() % 64, 0u);
  const auto parsed = ParsePlainHeader(header, header.size() + 24);
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  ASSERT_EQ(parsed->tensors.size(), 4u);
  EXPECT_EQ(parsed->tensors[0].name, "b\"quoted\\");
  EXPECT_EQ(parsed->tensors[0].shape, (Shape{2, 3}));
  EXPECT_EQ(parsed->tensors[1].begin, 12u);
  EXPECT_EQ(parsed->tensors[1].dtype, DType::kFloat8E4m3fn);
  EXPECT_EQ(parsed->metadata, (std::vector<std::pair<std::string, std::string>>{{"format", "pt"}}));
}

TEST(PlainHeaderTest, ParsePlainHeader_EveryDtypeThatHasAName_ComesBack) {
  int count = 0;
  for (const DTypeInfo& info : DTypeTable()) {
    const PlainTensor tensor{"t", info.dtype, {2, 4}, 0, 0};
    ASSERT_EQ(CanBePlain(info.dtype, tensor.shape), info.dtype != DType::kComplex32 && info.dtype != DType::kComplex128)
        << info.name;
    if (!CanBePlain(info.dtype, tensor.shape)) continue;
    ++count;
    const std::string header = RenderPlainHeader({{tensor}});
    const auto parsed = ParsePlainHeader(header, header.size() + 8 * static_cast<uint64_t>(info.bytes));
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_EQ(parsed->tensors[0].dtype, info.dtype);
    EXPECT_EQ(parsed->tensors[0].shape, tensor.shape);
  }
  EXPECT_EQ(count, 20);
}

TEST(PlainHeaderTest, ParsePlainHeader_FourBitElements_AreCountedInPairs) {
  const std::string header = FileOf(R"({"a":{"dtype":"F4","shape":[3,8],"data_offsets":[0,12]}})");
  const auto pairs = ParsePlainHeader(header, header.size() + 12);
  ASSERT_TRUE(pairs.ok()) << pairs.status();
  EXPECT_EQ(pairs->tensors[0].shape, (Shape{3, 4}));
  EXPECT_EQ(ReasonFor(R"({"a":{"dtype":"F4","shape":[2,3],"data_offsets":[0,3]}})", 3), "UNSUPPORTED");
  EXPECT_EQ(ReasonFor(R"({"a":{"dtype":"F4","shape":[],"data_offsets":[0,1]}})", 1), "UNSUPPORTED");
  EXPECT_EQ(ReasonFor(R"({"a":{"dtype":"F4","shape":[3,8],"data_offsets":[0,24]}})", 24), "BAD_SAFETENSORS");
  EXPECT_FALSE(CanBePlain(DType::kFloat4E2m1fnX2, {}));
  EXPECT_TRUE(CanBePlain(DType::kFloat32, {}));
}

TEST(PlainHeaderTest, ParsePlainHeader_HostileHeaders_AreRefused) {
  const std::string good = R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";
  EXPECT_EQ(ReasonFor(good, 8), "");
  EXPECT_EQ(ReasonFor(good, 7), "FILE_TRUNCATED");
  EXPECT_EQ(ReasonFor(good, 9), "BAD_SAFETENSORS");
  for (
      const char* bad : {
          R"([])",
          R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})",
          R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}})",
          R"({"a":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}})",
          R"({"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,8]}})",
          R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}})",
          R"({"a":{"dtype":"F32","shape":[2]}})",
          R"({"":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})",
          R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"a":{"dtype":"F32","shape":[2],"data_offsets":[8,16]}})",
          R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}})",
      }) {
    EXPECT_EQ(ReasonFor(bad, 8), "BAD_SAFETENSORS") << bad;
  }
  EXPECT_EQ(ReasonFor(R"({"a":{"dtype":"F6","shape":[2],"data_offsets":[0,8]}})", 8), "UNSUPPORTED");
  EXPECT_FALSE(PlainHeaderBytesFrom(std::string("\xff\xff\xff\xff\xff\xff\xff\xff", 8), 1 << 20).ok());
  EXPECT_FALSE(PlainHeaderBytesFrom("1234", 4).ok());
}

TEST(PlainIndexTest, ParsePlainIndex_WhatIsRendered_IsParsed) {
  const PlainIndex index{{{"a", "model-00001-of-00002.safetensors"}, {"b", "model-00002-of-00002.safetensors"}}, 77};
  const auto parsed = ParsePlainIndex(RenderPlainIndex(index));
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->weight_map, index.weight_map);
  EXPECT_EQ(parsed->total_size, 77u);
}

TEST(PlainIndexTest, ParsePlainIndex_FilesElsewhere_AreRefused) {
  for (const char* file : {"../x", "a/b", "", ".", "..", "/etc/passwd"}) {
    EXPECT_FALSE(ParsePlainIndex(std::string(R"({"weight_map":{"a":")") + file + "\"}}").ok()) << file;
  }
  EXPECT_FALSE(ParsePlainIndex("{}").ok());
  EXPECT_EQ(ReasonOf(ParsePlainIndex("7").status()), Reason::kBadSafetensors);
}

}  // namespace
}  // namespace cairn

#include "foreign/write/export_fingerprints.h"

#include <gtest/gtest.h>

#include <numeric>

#include "common/base/crc64.h"
#include "common/tensor/fingerprint.h"
#include "foreign/write/testing/manifest_of.h"

namespace cairn {
namespace {

std::string FingerprintOf(std::string_view bytes) {
  return FingerprintText(Crc64FromRemainder(ExtendRemainder64(0, bytes.data(), bytes.size()), bytes.size()));
}

class ExportFingerprintsTest : public ::testing::Test {
 protected:
  ExportFingerprintsTest() {
    std::iota(bytes_.begin(), bytes_.end(), '\1');
    manifest_ = cairn::testing::ManifestOf({{"a", DType::kUint8, {4, 6}}, {"b", DType::kFloat16, {3}}});
    manifest_.summaries.resize(2);
    manifest_.summaries[0].fingerprint_parts = 7;
    manifest_.summaries[1].fingerprint_parts = 8;
  }

  std::vector<WholeTensor> Choose(std::vector<std::string> statements) {
    TensorChoice choice;
    if (!statements.empty()) choice.mapping = aoa::Config{.statements = std::move(statements)};
    auto chosen = ChooseTensors(manifest_, choice);
    EXPECT_TRUE(chosen.ok()) << chosen.status();
    return *std::move(chosen);
  }
  // Adds the whole tensor number `i` as it would stand in a file, in parts that begin at these elements.
  void AddWhole(ExportFingerprints& fingerprints, const WholeTensor& tensor, const std::vector<int64_t>& begins) {
    const int64_t elements = *ElementCount(tensor.plain.shape);
    std::vector<TensorPart> parts;
    for (size_t i = 0; i < begins.size(); ++i) {
      const int64_t end = i + 1 < begins.size() ? begins[i + 1] : elements;
      parts.push_back({&tensor, begins[i], end, static_cast<uint64_t>(begins[i] * BytesOf(tensor.plain.dtype))});
    }
    ASSERT_TRUE(fingerprints.Add(parts, bytes_.data(), 2).ok());
  }

  Manifest manifest_;
  std::string bytes_ = std::string(24, '\0');
};

TEST_F(ExportFingerprintsTest, Text_StoredTensors_HaveThoseOfTheManifest) {
  const auto tensors = Choose({});
  ExportFingerprints fingerprints(manifest_, tensors);
  EXPECT_TRUE(fingerprints.Missing(1000).empty());
  EXPECT_EQ(fingerprints.Text(), "{\n  \"a\": \"" + FingerprintText(*manifest_.fingerprint_of(0)) + "\",\n  \"b\": \"" +
                                     FingerprintText(*manifest_.fingerprint_of(1)) + "\"\n}\n");
  EXPECT_NE(fingerprints.Text(std::vector<std::pair<std::string, uint32_t>>{{"tied", 1}})
                .find("\"tied\": \"" + FingerprintText(*manifest_.fingerprint_of(1))),
            std::string::npos);
  const auto renamed = Choose({"a -> z", "b -> c"});
  EXPECT_TRUE(ExportFingerprints(manifest_, renamed).Missing(1000).empty());
}

TEST_F(ExportFingerprintsTest, Text_TensorsThatAMappingMakes_HaveThatOfTheirBytes) {
  const auto tensors = Choose({"a^T -> t", "b -> c, dtype='float32'"});
  ASSERT_EQ(tensors.size(), 2u);
  ExportFingerprints fingerprints(manifest_, tensors);
  EXPECT_EQ(fingerprints.Missing(1000).size(), 2u);
  for (const WholeTensor& tensor : tensors) AddWhole(fingerprints, tensor, {0, 1});
  EXPECT_TRUE(fingerprints.Missing(1000).empty());
  EXPECT_EQ(fingerprints.Text(), "{\n  \"c\": \"" + FingerprintOf(bytes_.substr(0, 12)) + "\",\n  \"t\": \"" +
                                     FingerprintOf(bytes_) + "\"\n}\n");
}

TEST_F(ExportFingerprintsTest, Missing_WhatAnEarlierExportHasWritten_IsReadAgain) {
  manifest_.summaries.clear();
  const auto tensors = Choose({});
  ExportFingerprints fingerprints(manifest_, tensors);
  const WholeTensor& a = tensors[0];
  // An interrupted export had files with the begin of the tensor, and with something in its middle.
  ASSERT_TRUE(
      fingerprints.Add(std::vector<TensorPart>{{&a, 20, 24, 20}, {&a, 5, 8, 5}, {&a, 8, 10, 8}}, bytes_.data(), 1)
          .ok());
  AddWhole(fingerprints, tensors[1], {0});
  std::vector<std::pair<int64_t, int64_t>> missing;
  for (const TensorPart& part : fingerprints.Missing(4)) {
    EXPECT_EQ(part.tensor, &a);
    missing.emplace_back(part.begin, part.end);
  }
  EXPECT_EQ(missing, (std::vector<std::pair<int64_t, int64_t>>{{0, 4}, {4, 5}, {10, 14}, {14, 18}, {18, 20}}));
  for (const TensorPart& part : fingerprints.Missing(4)) {
    ASSERT_TRUE(fingerprints.Add({&part, 1}, bytes_.data() + part.begin, 1).ok());
  }
  EXPECT_TRUE(fingerprints.Missing(4).empty());
  EXPECT_NE(fingerprints.Text().find("\"a\": \"" + FingerprintOf(bytes_) + "\""), std::string::npos);
}

TEST_F(ExportFingerprintsTest, Text_NoElements_IsThatOfNoBytes) {
  manifest_ = cairn::testing::ManifestOf({{"empty", DType::kFloat32, {0, 3}}});
  const auto tensors = Choose({});
  ExportFingerprints fingerprints(manifest_, tensors);
  EXPECT_TRUE(fingerprints.Missing(4).empty());
  EXPECT_EQ(fingerprints.Text(), "{\n  \"empty\": \"" + FingerprintOf("") + "\"\n}\n");
}

}  // namespace
}  // namespace cairn

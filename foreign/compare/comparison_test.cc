#include "foreign/compare/comparison.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "common/base/crc64.h"
#include "common/status/reason.h"
#include "foreign/read/foreign_directory.h"

namespace cairn {
namespace {

uint64_t Fingerprint(std::string_view bytes) {
  return Crc64FromRemainder(ExtendRemainder64(0, bytes.data(), bytes.size()), bytes.size());
}

class ComparisonTest : public testing::Test {
 protected:
  ComparisonTest() {
    top_ = testing::TempDir() + "/comparison-XXXXXX";
    EXPECT_NE(mkdtemp(top_.data()), nullptr);
  }
  ~ComparisonTest() override { std::filesystem::remove_all(top_); }

  // Writes a directory with one file that holds "x", and returns it as a checkpoint.
  Manifest Write(const std::string& name, const std::string& dtype, const std::string& shape, const std::string& data) {
    std::string header = R"({"x":{"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":[0,)" +
                         std::to_string(data.size()) + "]}}";
    std::filesystem::create_directory(top_ + "/" + name);
    std::ofstream(top_ + "/" + name + "/x.safetensors", std::ios::binary)
        << static_cast<char>(header.size()) << std::string(7, '\0') << header << data;
    const auto manifest = ReadForeignDirectory(std::filesystem::canonical(top_ + "/" + name));
    EXPECT_TRUE(manifest.ok()) << manifest.status();
    return *manifest;
  }

  static ComparedName Compare(const Manifest& first, const Manifest& second) {
    const auto names = CompareCheckpoints({nullptr, &first, {}}, {nullptr, &second, {}}, {});
    EXPECT_TRUE(names.ok()) << names.status();
    EXPECT_EQ(names->size(), 1u);
    return names->front();
  }

  std::string top_;
};

TEST_F(ComparisonTest, CompareCheckpoints_SameBytes_GivesTheirFingerprint) {
  const ComparedName same = Compare(Write("a", "U8", "[2,3]", "abcdef"), Write("b", "U8", "[2,3]", "abcdef"));
  EXPECT_EQ(same.difference, Difference::kNone);
  EXPECT_EQ(same.first->fingerprint, Fingerprint("abcdef"));
  EXPECT_EQ(same.second->fingerprint, Fingerprint("abcdef"));
}

TEST_F(ComparisonTest, CompareCheckpoints_TwoElementsDiffer_CountsElementsAndFindsTheFirst) {
  const ComparedName two = Compare(Write("a", "I16", "[4]", "aabbccdd"), Write("b", "I16", "[4]", "aaBBccdD"));
  EXPECT_EQ(two.difference, Difference::kValues);
  EXPECT_EQ(two.differing, 2u);
  EXPECT_EQ(two.first_differing, 1u);
  EXPECT_EQ(two.first->fingerprint, Fingerprint("aabbccdd"));
  EXPECT_EQ(two.second->fingerprint, Fingerprint("aaBBccdD"));
}

TEST_F(ComparisonTest, CompareCheckpoints_FloatsDiffer_FindsTheLargestDifference) {
  const auto bytes = [](std::vector<float> values) {
    return std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
  };
  const ComparedName name =
      Compare(Write("a", "F32", "[5]", bytes({0, 1, 2, 3, 4})), Write("b", "F32", "[5]", bytes({0, 1.5, -2, 3, NAN})));
  EXPECT_EQ(name.differing, 3u);
  EXPECT_EQ(name.largest_difference, 4.0);
  EXPECT_EQ(name.largest_at, 2u);
  EXPECT_EQ(name.nans, 1u);
  const ComparedName zeros = Compare(Write("c", "F32", "[1]", bytes({0})), Write("d", "F32", "[1]", bytes({-0.0f})));
  EXPECT_EQ(zeros.differing, 1u);
  EXPECT_EQ(zeros.largest_difference, 0.0) << "the bits differ, and the numbers do not";
  const ComparedName nan = Compare(Write("e", "F32", "[1]", bytes({0})), Write("f", "F32", "[1]", bytes({NAN})));
  EXPECT_EQ(nan.largest_difference, std::nullopt);
}

TEST_F(ComparisonTest, CompareCheckpoints_TheSameFingerprints_AreNotRead) {
  Manifest first = Write("a", "U8", "[6]", "abcdef"), second = Write("b", "U8", "[6]", "xxxxxx");
  first.summaries.resize(1);
  first.summaries[0].fingerprint_parts = 7;
  EXPECT_EQ(Compare(first, second).difference, Difference::kValues) << "one side has none";
  second.summaries = first.summaries;
  const ComparedName same = Compare(first, second);
  EXPECT_EQ(same.difference, Difference::kNone);
  EXPECT_EQ(same.first->fingerprint, first.fingerprint_of(0));
  second.summaries[0].fingerprint_parts = 8;
  EXPECT_EQ(Compare(first, second).differing, 6u) << "what differs is counted";
}

TEST_F(ComparisonTest, CompareCheckpoints_AnotherForm_IsNotRead) {
  const Manifest bytes = Write("a", "U8", "[6]", "abcdef");
  EXPECT_EQ(Compare(bytes, Write("b", "U8", "[3,2]", "abcdef")).difference, Difference::kShape);
  const ComparedName dtype = Compare(bytes, Write("c", "I8", "[6]", "abcdef"));
  EXPECT_EQ(dtype.difference, Difference::kDtype);
  EXPECT_EQ(dtype.first->fingerprint, std::nullopt);
}

TEST_F(ComparisonTest, CompareCheckpoints_Interrupted_Ends) {
  const Manifest bytes = Write("a", "U8", "[6]", "abcdef");
  CompareOptions options;
  options.interrupted = [] { return true; };
  const auto names = CompareCheckpoints({nullptr, &bytes, {}}, {nullptr, &bytes, {}}, options);
  EXPECT_TRUE(HasReason(names.status(), Reason::kInterrupted)) << names.status();
}

}  // namespace
}  // namespace cairn

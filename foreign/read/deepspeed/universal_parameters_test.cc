#include "foreign/read/deepspeed/universal_parameters.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "common/status/reason.h"
#include "common/status/status.h"

namespace cairn {
namespace {

// A model of two trained weights, "up" of (5, 7) and "norm" of (6,), and the files below "zero".
class UniversalParametersTest : public testing::Test {
 protected:
  UniversalParametersTest() {
    read_.directory = "/old";
    DeepSpeedPart& part = read_.parts.emplace_back();
    part.models.emplace_back().path = "/old/model";
    part.models[0].content.groups = {{{{"up", {5, 7}, 0}}}, {{{"norm", {6}, 0}, {"none", {0}, 0}}}};
    Put("zero/norm/exp_avg.pt", {6});
    Put("zero/norm/fp32.pt", {6});
    Put("zero/norm/step.pt", {});
    Put("zero/optimizer_state.pt", {1});
    Put("zero/scale/fp32.pt", {3});
    Put("zero/up/exp_avg.pt", {5, 7});
    Put("zero/up/fp32.pt", {5, 7});
    Put("zero/up/step.pt", {});
  }

  void Put(const std::string& path, Shape shape) {
    names_.parameters.push_back(path);
    StridedTensor tensor;
    tensor.strides = RowMajorStrides(shape);
    tensor.shape = std::move(shape);
    read_.parameters.emplace_back(std::move(tensor));
  }
  size_t Number(const std::string& path) const {
    size_t number = 0;
    while (names_.parameters.at(number) != path) ++number;
    return number;
  }
  void Remove(const std::string& path) {
    const auto number = static_cast<std::ptrdiff_t>(Number(path));
    names_.parameters.erase(names_.parameters.begin() + number);
    read_.parameters.erase(read_.parameters.begin() + number);
  }
  void SetShape(const std::string& path, const Shape& shape) { read_.parameters[Number(path)]->shape = shape; }
  absl::Status Check() const { return CheckUniversalParameters(names_, read_); }
  void ExpectRefused(Reason reason, const std::string& file) const {
    EXPECT_EQ(ReasonOf(Check()), reason) << Check();
    EXPECT_EQ(MetadataOf(Check())["file"], "/old/" + file);
  }

  DeepSpeedFiles names_;
  DeepSpeedParts read_;
};

TEST_F(UniversalParametersTest, ParseUniversalPath_WeightAndKey) {
  EXPECT_EQ(ParseUniversalPath("zero/1.up.weight/exp_avg.pt").weight, "1.up.weight");
  EXPECT_EQ(ParseUniversalPath("zero/1.up.weight/exp_avg.pt").key, "exp_avg");
  EXPECT_EQ(ParseUniversalPath("zero/optimizer_state.pt").weight, "");
  EXPECT_EQ(ParseUniversalPath("zero/optimizer_state.pt").key, "optimizer_state");
}

TEST_F(UniversalParametersTest, CheckUniversalParameters_AllIsThere) {
  EXPECT_TRUE(Check().ok()) << Check();
  SetShape("zero/up/fp32.pt", {35});
  EXPECT_TRUE(Check().ok()) << "stage 3 leaves weights flat";
}

TEST_F(UniversalParametersTest, CheckUniversalParameters_AFileIsMissing_NamesIt) {
  for (const std::string key : {"exp_avg", "fp32", "step"}) {
    Remove("zero/up/" + key + ".pt");
    ExpectRefused(Reason::kFileMissing, "zero/up/" + key + ".pt");
    Put("zero/up/" + key + ".pt", key == "step" ? Shape{} : Shape{5, 7});
    EXPECT_TRUE(Check().ok()) << Check();
  }
  for (const std::string key : {"exp_avg", "fp32", "step"}) Remove("zero/norm/" + key + ".pt");
  EXPECT_EQ(ReasonOf(Check()), Reason::kFileMissing) << "the whole directory of a weight";
  EXPECT_EQ(MetadataOf(Check())["tensor"], "norm");
}

TEST_F(UniversalParametersTest, CheckUniversalParameters_AnotherShape_IsRefused) {
  SetShape("zero/up/fp32.pt", {7, 5});
  ExpectRefused(Reason::kBadForeignFile, "zero/up/fp32.pt");
  SetShape("zero/up/fp32.pt", {45});
  ExpectRefused(Reason::kBadForeignFile, "zero/up/fp32.pt");
  SetShape("zero/up/fp32.pt", {5, 7});
  SetShape("zero/up/exp_avg.pt", {5, 9});
  ExpectRefused(Reason::kBadForeignFile, "zero/up/exp_avg.pt");
  SetShape("zero/up/exp_avg.pt", {5, 7});
  read_.parameters[Number("zero/up/fp32.pt")].reset();
  ExpectRefused(Reason::kBadForeignFile, "zero/up/fp32.pt");
}

TEST_F(UniversalParametersTest, CheckUniversalParameters_WhatTheFilesDoNotSay_IsNotCompared) {
  read_.slices = 2;
  SetShape("zero/up/fp32.pt", {10, 7});
  SetShape("zero/up/exp_avg.pt", {10, 7});
  EXPECT_TRUE(Check().ok()) << Check();
  Remove("zero/up/fp32.pt");
  read_.parts[0].models[0].content.has_experts = true;
  EXPECT_TRUE(Check().ok()) << "each rank has other experts";
}

}  // namespace
}  // namespace cairn

#include "foreign/write/export_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "common/status/reason.h"
#include "foreign/write/testing/manifest_of.h"

namespace cairn {
namespace {

using ::testing::ElementsAre;
using testing::ManifestOf;

std::vector<std::string> NamesOf(const ExportPlan& plan, size_t file) {
  std::vector<std::string> names;
  for (const ExportPiece& piece : plan.files[file].pieces) names.push_back(plan.tensors[piece.tensor].plain.name);
  return names;
}

TEST(ExportPlanTest, MakeExportPlan_SeveralTensors_FillsFilesInNaturalOrder) {
  const Manifest manifest = ManifestOf({{"l.10", DType::kFloat32, {100}},
                                        {"l.2", DType::kFloat32, {100}},
                                        {"l.3", DType::kFloat32, {300}},
                                        {"l.9", DType::kFloat32, {10}}});
  ExportOptions options;
  options.max_shard_bytes = 800;
  const auto plan = MakeExportPlan(manifest, options);
  ASSERT_TRUE(plan.ok()) << plan.status();
  ASSERT_EQ(plan->files.size(), 3u);
  EXPECT_THAT(NamesOf(*plan, 0), ElementsAre("l.2"));
  EXPECT_THAT(NamesOf(*plan, 1), ElementsAre("l.3"));
  EXPECT_THAT(NamesOf(*plan, 2), ElementsAre("l.9", "l.10"));
  EXPECT_EQ(plan->files[2].name, "model-00003-of-00003.safetensors");
  const auto index = ParsePlainIndex(plan->index);
  ASSERT_TRUE(index.ok());
  EXPECT_EQ(index->total_size, 4u * 510);
  EXPECT_EQ(index->weight_map.size(), 4u);
}

TEST(ExportPlanTest, MakeExportPlan_ElementsOfSeveralSizes_PutsWideOnesFirst) {
  const Manifest manifest =
      ManifestOf({{"a", DType::kInt8, {3}}, {"b", DType::kFloat64, {1}}, {"c", DType::kBfloat16, {1}}});
  const auto plan = MakeExportPlan(manifest, {});
  ASSERT_TRUE(plan.ok());
  EXPECT_THAT(NamesOf(*plan, 0), ElementsAre("b", "c", "a"));
}

TEST(ExportPlanTest, MakeExportPlan_DtypesThatOlderReadersRefuse_HaveFilesOfTheirOwn) {
  const Manifest manifest = ManifestOf({{"a", DType::kFloat4E2m1fnX2, {4}},
                                        {"b", DType::kFloat32, {1}},
                                        {"c", DType::kFloat8E8m0fnu, {2}},
                                        {"d", DType::kFloat8E4m3fn, {2}},
                                        {"e", DType::kFloat8E4m3fnuz, {2}},
                                        {"f", DType::kFloat8E5m2fnuz, {2}}});
  const auto plan = MakeExportPlan(manifest, {});
  ASSERT_TRUE(plan.ok()) << plan.status();
  ASSERT_EQ(plan->files.size(), 2u);
  EXPECT_THAT(NamesOf(*plan, 0), ElementsAre("b", "d"));
  EXPECT_THAT(NamesOf(*plan, 1), ElementsAre("a", "c", "e", "f"));
  EXPECT_EQ(plan->total_bytes, 4u + 4 + 2 + 2 + 2 + 2);
}

TEST(ExportPlanTest, MakeExportPlan_AScalarOfTwoFourBitElements_IsRefusedByName) {
  const auto plan = MakeExportPlan(ManifestOf({{"pair", DType::kFloat4E2m1fnX2, {}}}), {});
  EXPECT_EQ(ReasonOf(plan.status()), Reason::kUnsupported);
  EXPECT_NE(plan.status().message().find("pair (float4_e2m1fn_x2, a scalar)"), absl::string_view::npos)
      << plan.status();
}

TEST(ExportPlanTest, MakeExportPlan_WithAMapping_GivesItsOutputsInTheirDtypes) {
  Manifest manifest = ManifestOf({{"opt", DType::kFloat32, {2}}, {"w", DType::kFloat32, {4, 2}}});
  manifest.aliases = {{"tied", "w"}};
  ExportOptions options;
  options.choice.exclude = {"opt*"};
  options.choice.mapping.emplace();
  options.choice.mapping->statements = {"w -> v, dtype='bfloat16'", "v^T -> out"};
  const auto plan = MakeExportPlan(manifest, options);
  ASSERT_TRUE(plan.ok()) << plan.status();
  ASSERT_EQ(plan->tensors.size(), 1u);
  EXPECT_EQ(plan->tensors[0].plain.name, "out");
  EXPECT_EQ(plan->tensors[0].plain.shape, (Shape{2, 4}));
  EXPECT_EQ(plan->tensors[0].plain.dtype, DType::kBfloat16);
}

// Returns the names of the tensors with their dtypes and shapes; or the reason of the error.
std::vector<std::string> Exported(const Manifest& manifest, const std::string& statement,
                                  std::vector<std::string> exclude = {}) {
  ExportOptions options;
  options.choice.exclude = std::move(exclude);
  options.choice.mapping.emplace();
  options.choice.mapping->statements = {statement};
  const auto plan = MakeExportPlan(manifest, options);
  if (!plan.ok()) return {std::string(InfoOf(*ReasonOf(plan.status())).name)};
  std::vector<std::string> texts;
  for (const WholeTensor& tensor : plan->tensors) {
    texts.push_back(absl::StrCat(tensor.plain.name, " ", std::string(NameOf(tensor.plain.dtype)), " ",
                                 ShapeToString(tensor.plain.shape)));
  }
  return texts;
}

Manifest OneWeightWithStates() {
  return ManifestOf({{"w", DType::kBfloat16, {4, 2}},
                     {"w.beta1_pow_acc_0", DType::kFloat32, {1}},
                     {"w.moment1_0", DType::kFloat32, {4, 2}},
                     {"w.w_0", DType::kFloat32, {4, 2}},
                     {"x", DType::kFloat32, {3}}});
}

TEST(ExportPlanTest, MakeExportPlan_WithAMapping_OptimizerStatesFollowTheirWeight) {
  const Manifest manifest = OneWeightWithStates();
  EXPECT_THAT(Exported(manifest, "x -> y"),
              ElementsAre("w bfloat16 (4, 2)", "w.beta1_pow_acc_0 float32 (1,)", "w.moment1_0 float32 (4, 2)",
                          "w.w_0 float32 (4, 2)", "y float32 (3,)"));
  EXPECT_THAT(Exported(manifest, "w^T -> u"),
              ElementsAre("u bfloat16 (2, 4)", "u.beta1_pow_acc_0 float32 (1,)", "u.moment1_0 float32 (2, 4)",
                          "u.w_0 float32 (2, 4)", "x float32 (3,)"));
  EXPECT_THAT(Exported(manifest, "w -> u, dtype='float32'"), ::testing::Contains("u.w_0 float32 (4, 2)"));
  EXPECT_THAT(Exported(manifest, "w -> u, v, axis=0"),
              ::testing::IsSupersetOf({"u.moment1_0 float32 (2, 2)", "v.moment1_0 float32 (2, 2)"}));
  EXPECT_THAT(Exported(manifest, "w -> _"), ElementsAre("x float32 (3,)"));
  const Manifest one_has_none =
      ManifestOf({{"a", DType::kFloat32, {2}}, {"a.moment1_0", DType::kFloat32, {2}}, {"b", DType::kFloat32, {2}}});
  EXPECT_THAT(Exported(one_has_none, "a, b -> c, axis=0"), ElementsAre("MISSING_NAMES"));
}

TEST(ExportPlanTest, MakeExportPlan_WithAMapping_StateWithoutItsWeightIsATensor) {
  const Manifest manifest = OneWeightWithStates();
  EXPECT_THAT(Exported(manifest, "x -> y", {"w"}),
              ElementsAre("w.beta1_pow_acc_0 float32 (1,)", "w.moment1_0 float32 (4, 2)", "w.w_0 float32 (4, 2)",
                          "y float32 (3,)"));
  EXPECT_THAT(Exported(manifest, "x -> y", {"w", "w.moment1_0", "w.w_0"}),
              ElementsAre("w.beta1_pow_acc_0 float32 (1,)", "y float32 (3,)"));
  EXPECT_THAT(Exported(manifest, "* -> m.*", {"w", "w.beta*"}),
              ElementsAre("m.w.moment1_0 float32 (4, 2)", "m.w.w_0 float32 (4, 2)", "m.x float32 (3,)"));
  EXPECT_THAT(Exported(manifest, "x -> w.w_0"), ElementsAre("MAPPING_UNKNOWN_NAME"));
  const Manifest other_shape =
      ManifestOf({{"conv", DType::kFloat32, {3}}, {"conv.w_0", DType::kFloat32, {4, 2}}, {"x", DType::kFloat32, {3}}});
  EXPECT_THAT(Exported(other_shape, "x -> y"),
              ElementsAre("conv float32 (3,)", "conv.w_0 float32 (4, 2)", "y float32 (3,)"));
}

TEST(ExportPlanTest, MakeExportPlan_OwnNameOfATiedWeightIsLeftOut_ItsOtherNameIsWritten) {
  Manifest manifest = ManifestOf({{"emb", DType::kFloat32, {4, 2}}, {"x", DType::kFloat32, {3}}});
  manifest.aliases = {{"head", "emb"}, {"head2", "emb"}};
  EXPECT_THAT(Exported(manifest, "x -> y", {"emb", "head2"}), ElementsAre("head float32 (4, 2)", "y float32 (3,)"));
  ExportOptions options;
  options.choice.include = {"head*"};
  const auto plan = MakeExportPlan(manifest, options);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_THAT(NamesOf(*plan, 0), ElementsAre("head"));
  EXPECT_THAT(ChooseAliases(manifest, options.choice), ElementsAre(::testing::Pair("head2", "head")));
}

TEST(ExportPlanTest, MakeExportPlan_TensorCannotBeWritten_NamesTheReason) {
  const auto reason = [](const absl::StatusOr<ExportPlan>& plan) {
    return plan.ok() ? "" : std::string(InfoOf(*ReasonOf(plan.status())).name);
  };
  const Manifest odd = ManifestOf({{"x", DType::kComplex128, {2}}});
  EXPECT_EQ(reason(MakeExportPlan(odd, {})), "UNSUPPORTED");
  ExportOptions none;
  none.choice.include = {"nothing"};
  EXPECT_EQ(reason(MakeExportPlan(odd, none)), "BAD_REQUEST");
  const Manifest mixed = ManifestOf({{"a", DType::kFloat32, {2}}, {"b", DType::kFloat32, {2}}});
  ExportOptions wrong;
  wrong.choice.mapping.emplace();
  wrong.choice.mapping->statements = {"a, c -> d, axis=0"};
  EXPECT_EQ(reason(MakeExportPlan(mixed, wrong)), "MAPPING_UNKNOWN_NAME");
}

TEST(NaturallyLessTest, NaturallyLess_NumbersInNames_ComparesThemByValue) {
  EXPECT_TRUE(NaturallyLess("l.2", "l.10"));
  EXPECT_FALSE(NaturallyLess("l.10", "l.2"));
  EXPECT_TRUE(NaturallyLess("l.2.a", "l.2.b"));
  EXPECT_TRUE(NaturallyLess("a", "ab"));
  EXPECT_NE(NaturallyLess("a01", "a1"), NaturallyLess("a1", "a01"));
  EXPECT_FALSE(NaturallyLess("a", "a"));
}

}  // namespace
}  // namespace cairn

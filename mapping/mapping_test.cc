// Tests the engine as the planner calls it: typed steps, boxes, statuses. tests/mapping tests on arrays what programs
// mean.
#include "mapping/mapping.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status/reason.h"
#include "mapping/report.h"

namespace cairn::aoa {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

ShardDesc Whole(std::string_view key, Shape shape, DType dtype = DType::kFloat32) {
  return {
      .key = key, .local_shape = shape, .global_shape = shape, .global_offset = Shape(shape.size(), 0), .dtype = dtype};
}

TEST(Mapping, Resolve_SeveralSteps_AnswersThemTypedAndInOrder) {
  const std::vector<ShardDesc> source = {Whole("s0", {2, 2}), Whole("s1", {2, 2})};
  const std::vector<ShardDesc> target = {Whole("d0", {4, 1}, DType::kBfloat16), Whole("d1", {4, 1}, DType::kBfloat16)};
  const Config config{
      .statements = {"s0, s1 -> s, axis=1", "s -> c, dtype='bfloat16'", "c^T -> d", "d -> d0, d1, axis=1"}};
  const auto mapped = BuildMapping(config, source, target);
  ASSERT_TRUE(mapped.ok()) << mapped.status();
  std::vector<Entry> entries;
  ASSERT_TRUE(mapped->Resolve(target[1], entries).ok());
  ASSERT_THAT(entries, SizeIs(2));
  EXPECT_EQ(entries[1].source_key, "s1");
  EXPECT_EQ(entries[1].target, (Box{{2, 0}, {2, 1}}));
  EXPECT_EQ(entries[1].source, (Box{{1, 0}, {1, 2}}));
  EXPECT_EQ(entries[1].source_shape, (Shape{2, 2}));
  const auto steps = mapped->steps(entries[1]);
  ASSERT_THAT(steps, SizeIs(2));
  EXPECT_EQ(steps[0].kind, Step::Kind::kCast);
  EXPECT_EQ(steps[0].dtype, DType::kBfloat16);
  EXPECT_EQ(steps[1].kind, Step::Kind::kPermute);
  EXPECT_EQ(steps[1].axes, (Shape{1, 0}));
  EXPECT_THAT(mapped->postprocess(entries[1]), ElementsAre("bfloat16", "[1, 0]"));
}

TEST(Mapping, Resolve_CastAwayFromTheTargetsDtype_IsRefusedAndReported) {
  const std::vector<ShardDesc> source = {Whole("a", {2})};
  const auto reason = [&](const std::string& statements, DType wanted) {
    const std::vector<ShardDesc> target = {Whole("d", {2}, wanted)};
    const auto mapped = BuildMapping({.statements = {statements}}, source, target);
    EXPECT_TRUE(mapped.ok()) << mapped.status();
    std::vector<Entry> entries;
    const absl::Status resolved = mapped->Resolve(target[0], entries);
    EXPECT_EQ(MakeReport(*mapped, target).dtype_mismatches.size(), resolved.ok() ? 0u : 1u);
    return resolved.ok() ? "accepted" : std::string(InfoOf(*ReasonOf(resolved)).name);
  };
  EXPECT_EQ(reason("a -> d, dtype='bfloat16'", DType::kFloat32), "MAPPING_DTYPE");
  EXPECT_EQ(reason("a -> d, dtype='bfloat16'", DType::kBfloat16), "accepted");
  EXPECT_EQ(reason("a -> b, dtype='bfloat16'\nb -> d, dtype='float32'", DType::kFloat32), "accepted");
  EXPECT_EQ(reason("a -> b, dtype='bfloat16'\nb -> d, dtype='float32'", DType::kBfloat16), "MAPPING_DTYPE");
}

TEST(Mapping, Resolve_DescriptionsAreGone_OwnsWhatItNeeds) {
  std::optional<absl::StatusOr<MappedState>> mapped;
  {
    std::string key = "a.long.name.that.lives.on.the.heap";
    const std::vector<ShardDesc> source = {Whole(key, {2})};
    mapped = BuildMapping({}, source, std::nullopt);
    key.assign(key.size(), '!');
  }
  ASSERT_TRUE(mapped->ok());
  std::vector<Entry> entries;
  ASSERT_TRUE((*mapped)->Resolve(Whole("a.long.name.that.lives.on.the.heap", {2}), entries).ok());
  EXPECT_EQ(entries[0].source_key, "a.long.name.that.lives.on.the.heap");
}

TEST(Mapping, BuildMapping_Errors_TellsReasonStatementAndCount) {
  const std::vector<ShardDesc> source = {Whole("a", {4})};
  std::vector<MappingError> errors;
  size_t total = 0;
  const auto mapped =
      BuildMapping({.statements = {"a -> x, y, z, axis=0", "b -> c"}}, source, std::nullopt, &errors, &total);
  ASSERT_FALSE(mapped.ok());
  EXPECT_TRUE(HasReason(mapped.status(), Reason::kMappingShape));
  EXPECT_THAT(std::string(mapped.status().message()), HasSubstr("and 1 more"));
  EXPECT_EQ(MetadataOf(mapped.status()).at("statement"), "a -> x, y, z, axis=0");
  EXPECT_EQ(total, 2u);
  ASSERT_THAT(errors, SizeIs(2));
  EXPECT_EQ(errors[1].reason, Reason::kMappingUnknownName);
}

// Each line doubles the pieces; of an array without elements, too.
TEST(Mapping, BuildMapping_PiecesDoubleLineByLine_EndsBeforeTheyTakeTheMemory) {
  const std::vector<ShardDesc> source = {Whole("a", {0})};
  std::vector<std::string> statements = {"a -> t0"};
  for (int i = 0; i < 40; ++i)
    statements.push_back("t" + std::to_string(i) + ", t" + std::to_string(i) + " -> t" + std::to_string(i + 1) +
                         ", axis=0");
  statements.emplace_back("t40 -> b");
  std::vector<MappingError> errors;
  size_t total = 0;
  const auto mapped = BuildMapping({.statements = statements}, source, std::nullopt, &errors, &total);
  ASSERT_FALSE(mapped.ok());
  EXPECT_TRUE(HasReason(mapped.status(), Reason::kMemoryLimit)) << mapped.status();
  EXPECT_THAT(NextActionOf(mapped.status()), HasSubstr("fewer operations on one tensor"));
}

// Returns the error of a mapping of tensors of shape {4, 4}.
absl::Status ErrorOf(const std::vector<std::string>& statements, const std::vector<std::string>& names) {
  std::vector<ShardDesc> source;
  for (const std::string& name : names) source.push_back(Whole(name, {4, 4}));
  return BuildMapping({.statements = statements}, source, std::nullopt).status();
}

TEST(Mapping, BuildMapping_OneTensorGoesThroughThousandsOfSteps_EndsBeforeTheyTakeTheMemory) {
  std::vector<std::string> statements = {"a -> t0"};
  for (int i = 0; i < 500; ++i) {
    statements.push_back(absl::StrCat("t", i, " -> t", i + 1, ", permute='[1, 0]'"));
  }
  EXPECT_TRUE(ErrorOf(statements, {"a"}).ok());
  for (int i = 500; i < 2000; ++i) {
    statements.push_back(absl::StrCat("t", i, " -> t", i + 1, ", permute='[1, 0]'"));
  }
  const absl::Status status = ErrorOf(statements, {"a"});
  EXPECT_TRUE(HasReason(status, Reason::kMemoryLimit)) << status;
  EXPECT_THAT(MetadataOf(status).at("statement"), HasSubstr("permute="));
}

TEST(Mapping, BuildMapping_PlaceholdersSideBySide_AreRefusedWhenTheyCanMatchInTooManyWays) {
  const std::string digits(3000, '1');
  EXPECT_TRUE(ErrorOf({"a.$LAYER_ID$EXPERT_ID -> b.$LAYER_ID.$EXPERT_ID"}, {"a." + digits, "a.12"}).ok());
  for (const std::string statement :
       {"a.$LAYER_ID***$LAYER_ID -> b.$LAYER_ID", "a.$LAYER_ID_OFFSET***$LAYER_ID_OFFSET -> b.$LAYER_ID_OFFSET"}) {
    const absl::Status status = ErrorOf({statement}, {"a." + digits + "2"});
    EXPECT_TRUE(HasReason(status, Reason::kMappingMacro)) << status;
    EXPECT_EQ(MetadataOf(status).at("statement"), statement);
  }
}

TEST(Mapping, BuildMapping_StatementsMakeMillionsOfNames_AreRefused) {
  const auto reason = [](const std::vector<std::string>& statements, const std::vector<std::string>& names) {
    return ReasonOf(ErrorOf(statements, names));
  };
  EXPECT_EQ(reason({"q, k, v -> a, fused_qkv, num_heads=65537, num_kv_heads=1"}, {"q", "k", "v"}),
            Reason::kMappingMacro);
  std::vector<std::string> statements;
  for (int i = 0; i < 22; ++i) {
    statements.push_back(absl::StrCat("q, k, v -> a", i, ", fused_qkv, axis=0, num_heads=65536, num_kv_heads=65536"));
  }
  EXPECT_EQ(reason(statements, {"q", "k", "v"}), Reason::kMappingMacro);
  statements.clear();
  for (int i = 0; i < 5; ++i) statements.push_back(absl::StrCat("a[0:1000000] -> b", i));
  EXPECT_EQ(reason(statements, {"a_0"}), Reason::kMappingMacro);
}

TEST(Mapping, BuildMapping_NamesOfHeadsAreTaken_OthersAreFoundSoon) {
  std::vector<std::string> names = {"q", "k", "v", "q3"};
  for (int i = 0; i < 3000; ++i) names.push_back(absl::StrCat("q_free", i, "_3"));
  const absl::Status status = ErrorOf({"q, k, v -> a, fused_qkv, axis=0, num_heads=4, num_kv_heads=4"}, names);
  EXPECT_TRUE(status.ok()) << status;
}

TEST(Mapping, BuildMapping_ManyErrors_CountsThoseBeyondWhatItKeeps) {
  Config config;
  for (int i = 0; i < 100; ++i) config.statements.push_back("nope" + std::to_string(i) + " -> d" + std::to_string(i));
  std::vector<MappingError> errors;
  size_t total = 0;
  EXPECT_FALSE(BuildMapping(config, {}, std::nullopt, &errors, &total).ok());
  EXPECT_EQ(total, 100u);
  EXPECT_THAT(errors, SizeIs(Diagnostics::kKept));
}

TEST(Mapping, BuildMapping_MissingIsAllowed_IsListed) {
  const std::vector<ShardDesc> source = {Whole("a", {2}), Whole("u", {2})};
  const std::vector<ShardDesc> target = {Whole("a", {2}), Whole("b", {2})};
  EXPECT_TRUE(HasReason(BuildMapping({}, source, target).status(), Reason::kMappingUncovered));
  const auto mapped = BuildMapping({.allow_missing = true}, source, target);
  ASSERT_TRUE(mapped.ok());
  const MappingReport report = MakeReport(*mapped, target);
  EXPECT_THAT(report.missing, ElementsAre("b"));
  EXPECT_THAT(report.unexpected, ElementsAre("u"));
  EXPECT_EQ(report.identities, 1u);
  std::vector<Entry> entries;
  EXPECT_TRUE(mapped->Resolve(target[1], entries).ok());
  EXPECT_TRUE(entries.empty());
}

TEST(Mapping, Resolve_ManyThreads_Agree) {
  std::vector<std::string> names;
  for (int i = 0; i < 64; ++i) names.push_back("e." + std::to_string(i) + ".w");
  std::vector<ShardDesc> source;
  for (const std::string& name : names) source.push_back(Whole(name, {2, 3}));
  const auto mapped = BuildMapping({.statements = {"e.*.w -> m, axis=0", "m^T -> f"}}, source, std::nullopt);
  ASSERT_TRUE(mapped.ok()) << mapped.status();
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int64_t i = 0; i < 64; ++i) {
        ShardDesc target = Whole("f", {3, 128});
        target.global_offset = {0, 2 * i};
        target.local_shape = {3, 2};
        std::vector<Entry> entries;
        ASSERT_TRUE(mapped->Resolve(target, entries).ok());
        ASSERT_THAT(entries, SizeIs(1));
        EXPECT_EQ(entries[0].source_key, names[i]);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// Returns "source -> target" of every target, in their order.
std::vector<std::string> Renamings(const Config& config, const std::vector<std::string>& sources,
                                   const std::vector<std::string>& targets) {
  std::vector<ShardDesc> source, target;
  for (const std::string& name : sources) source.push_back(Whole(name, {2}));
  for (const std::string& name : targets) target.push_back(Whole(name, {2}));
  const auto mapped = BuildMapping(config, source, target);
  EXPECT_TRUE(mapped.ok()) << mapped.status();
  std::vector<std::string> found;
  if (!mapped.ok()) return found;
  for (const ShardDesc& each : target) {
    std::vector<Entry> entries;
    EXPECT_TRUE(mapped->Resolve(each, entries).ok());
    for (const Entry& entry : entries) {
      found.push_back(std::string(entry.source_key) + " -> " + std::string(each.key));
    }
  }
  return found;
}

TEST(Mapping, BuildMapping_StarOnBothSides_RenamesAPrefix) {
  const Config config = {.statements = {"model.model.* -> model.*"}};
  EXPECT_THAT(Renamings(config, {"model.model.embed", "model.model.layers.0.w", "model.model.1", "model.head", "x"},
                        {"model.embed", "model.layers.0.w", "model.1", "model.head", "x"}),
              ElementsAre("model.model.embed -> model.embed", "model.model.layers.0.w -> model.layers.0.w",
                          "model.model.1 -> model.1", "model.head -> model.head", "x -> x"));
}

TEST(Mapping, BuildMapping_StarOnBothSidesBackwards_GivesTheOldNames) {
  const Config config = {.statements = {"model.model.* -> model.*"}, .reverse = true};
  EXPECT_THAT(Renamings(config, {"model.a", "model.b.c"}, {"model.model.a", "model.model.b.c"}),
              ElementsAre("model.a -> model.model.a", "model.b.c -> model.model.b.c"));
}

TEST(Mapping, BuildMapping_StarAlone_PutsAPrefixBeforeEveryName) {
  const Config config = {.statements = {"* -> model.*", "head -> lm_head"}};
  EXPECT_THAT(Renamings(config, {"embed", "layers.0.w", "head"}, {"model.embed", "model.layers.0.w", "lm_head"}),
              ElementsAre("embed -> model.embed", "layers.0.w -> model.layers.0.w", "head -> lm_head"));
  EXPECT_THAT(Renamings({.statements = {"model.* -> *"}}, {"model.embed", "model.0"}, {"embed", "0"}),
              ElementsAre("model.embed -> embed", "model.0 -> 0"));
}

TEST(Mapping, BuildMapping_StarsAndNamesThemselves_TheNamesGoFirst) {
  const Config config = {.statements = {"a.* -> b.*", "a.x -> b.y", "a.z -> c", "a.u^T -> b.u"}};
  EXPECT_THAT(Renamings(config, {"a.x", "a.y", "a.z", "a.w", "a.u"}, {"b.y", "c", "b.w", "b.u"}),
              ElementsAre("a.x -> b.y", "a.z -> c", "a.w -> b.w", "a.u -> b.u"));
}

TEST(Mapping, BuildMapping_StarInTheMiddle_KeepsAttributesAndTransposes) {
  std::vector<ShardDesc> source = {Whole("a.q.weight", {2, 3}), Whole("a.k.weight", {4, 3}), Whole("a.q.bias", {2})};
  const auto mapped =
      BuildMapping({.statements = {"a.*.weight^T -> b.*.kernel, dtype='bfloat16'"}}, source, std::nullopt);
  ASSERT_TRUE(mapped.ok()) << mapped.status();
  std::vector<std::string> names;
  for (const Output& output : mapped->outputs()) {
    names.push_back(std::string(mapped->Text(output.name)) + ShapeToString(mapped->variables().shape(output.variable)));
  }
  EXPECT_THAT(names, testing::UnorderedElementsAre("b.q.kernel(3, 2)", "b.k.kernel(3, 4)", "a.q.bias(2,)"));
}

TEST(Mapping, BuildMapping_StarsOfTwoSingleNames_MeanThemWhateverTheirNumbers) {
  EXPECT_THAT(Renamings({.statements = {"e.*.w -> f.*.w"}}, {"e.0.w"}, {"f.5.w"}), ElementsAre("e.0.w -> f.5.w"));
  EXPECT_THAT(Renamings({.statements = {"e.*.w -> f.*.w"}}, {"e.3.w", "e.4.w"}, {"f.4.w", "f.3.w"}),
              ElementsAre("e.4.w -> f.4.w", "e.3.w -> f.3.w"));
}

TEST(Mapping, BuildMapping_StarOnBothSidesWithoutAMatch_NamesTheSide) {
  const std::vector<ShardDesc> source = {Whole("a.x", {2})};
  const auto mapped = BuildMapping({.statements = {"b.* -> c.*"}}, source, std::nullopt);
  EXPECT_THAT(std::string(mapped.status().message()), HasSubstr("no source tensor matches 'b.*'"));
}

TEST(Report, MakeReport_ManyNames_GroupsByPatternAndCutsLongLists) {
  std::vector<std::string> names;
  for (int i = 0; i < 60; ++i) names.push_back("l." + std::to_string(i) + ".w");
  std::vector<ShardDesc> source;
  Config config;
  for (const std::string& name : names) {
    source.push_back(Whole(name, {2, 3}));
    config.statements.push_back(name + "^T -> m." + name);
  }
  std::vector<std::string> unused;
  for (int i = 0; i < 60; ++i) unused.push_back("z." + std::to_string(i));
  for (const std::string& name : unused) source.push_back(Whole(name, {2}));
  std::vector<std::string> wanted;
  for (const std::string& name : names) wanted.push_back("m." + name);
  std::vector<ShardDesc> target;
  for (const std::string& name : wanted) target.push_back(Whole(name, {3, 2}));
  const auto mapped = BuildMapping(config, source, target);
  ASSERT_TRUE(mapped.ok()) << mapped.status();
  const MappingReport report = MakeReport(*mapped, target);
  ASSERT_THAT(report.groups, SizeIs(1));
  EXPECT_EQ(report.groups[0].target, "m.l.*.w");
  EXPECT_THAT(report.groups[0].sources, ElementsAre("l.*.w"));
  EXPECT_EQ(report.groups[0].operation, "[1, 0]");
  EXPECT_EQ(report.groups[0].count, 60u);
  EXPECT_THAT(FormatReport(report), HasSubstr("... and 10 more"));
}

}  // namespace
}  // namespace cairn::aoa

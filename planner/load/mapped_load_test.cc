// Takes random mappings between random parallel layouts: it saves in one, loads through the statements into the other
// by the plans' real bytes, and compares with the statements executed on whole small arrays. CAIRN_MAPPED_SEEDS sets
// how many (default 600), CAIRN_MAPPED_SEED the first one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <numeric>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cairn/v1/plan.pb.h"
#include "common/base/digest.h"
#include "common/tensor/cast.h"
#include "common/tensor/testing/float_codec.h"
#include "planner/testing/executor.h"
#include "planner/testing/model.h"
#include "planner/testing/seeds.h"
#include "planner/testing/whole_array.h"

namespace cairn::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr DType kFloats[] = {DType::kFloat16, DType::kBfloat16, DType::kFloat32, DType::kFloat64};

// Makes a random program: its variables and its statements.
struct Program {
  struct Variable {
    std::string name;
    Array array;
    Array state;  // the same without casts, as for an optimizer state
    std::set<std::string> sources;
    bool reshaped = false;
  };
  std::vector<Variable> sources;
  std::vector<Variable> targets;
  std::vector<std::string> statements;
  bool states = false;
};

std::string ListText(const std::vector<int64_t>& list) { return absl::StrCat("'[", absl::StrJoin(list, ", "), "]'"); }

Program MakeProgram(Random& random) {
  Program program;
  program.states = Below(random, 3) == 0;
  std::vector<Program::Variable> pool;
  // All tensors are of one family of shapes, so that merges are possible.
  const size_t ndim = static_cast<size_t>(1 + Below(random, 3));
  Shape base;
  for (size_t d = 0; d < ndim; ++d) base.push_back(2 * (1 + Below(random, 5)));
  const DType common = kFloats[Below(random, 4)];
  const int64_t count = 1 + Below(random, 4);
  for (int64_t i = 0; i < count; ++i) {
    Program::Variable source;
    source.name = absl::StrCat("s", i);
    source.array.dtype = Below(random, 5) == 0   ? DType::kInt16
                         : Below(random, 4) == 0 ? kFloats[Below(random, 4)]
                                                 : common;
    source.array.shape = base;
    if (Below(random, 2) == 0) source.array.shape[static_cast<size_t>(Below(random, static_cast<int64_t>(ndim)))] += 2;
    const int64_t size = *ElementCount(source.array.shape);
    for (int64_t k = 0; k < size; ++k) {
      source.array.values.push_back(IsCastable(source.array.dtype)
                                        ? RoundTo(std::ldexp(static_cast<double>(Below(random, 1 << 20) - (1 << 19)),
                                                             static_cast<int>(Below(random, 24)) - 30),
                                                  source.array.dtype)
                                        : static_cast<double>(Below(random, 60000) - 30000));
    }
    source.state = source.array;
    source.state.dtype = DType::kFloat32;
    for (double& value : source.state.values) value = static_cast<double>(Below(random, 1 << 20));
    source.sources = {source.name};
    program.sources.push_back(source);
    pool.push_back(std::move(source));
  }
  int temporaries = 0;
  const auto fresh = [&] { return absl::StrCat("tmp", temporaries++); };
  const auto pick = [&]() -> const Program::Variable& {
    return pool[static_cast<size_t>(Below(random, static_cast<int64_t>(pool.size())))];
  };
  const int64_t steps = 1 + Below(random, 8);
  for (int64_t step = 0; step < steps; ++step) {
    const Program::Variable in = pick();
    const size_t n = in.array.shape.size();
    const size_t axis = static_cast<size_t>(Below(random, static_cast<int64_t>(n)));
    Program::Variable out = in;
    out.name = fresh();
    switch (Below(random, 6)) {
      case 0: {
        std::vector<int64_t> axes(n);
        std::iota(axes.begin(), axes.end(), int64_t{0});
        std::shuffle(axes.begin(), axes.end(), random);
        out.array = Permuted(in.array, axes);
        out.state = Permuted(in.state, axes);
        program.statements.push_back(absl::StrCat(in.name, " -> ", out.name, ", permute=", ListText(axes)));
        break;
      }
      case 1: {
        if (in.reshaped || in.array.shape[axis] < 2) continue;
        const int64_t first = 1 + Below(random, in.array.shape[axis] - 1);
        Program::Variable rest = in;
        rest.name = fresh();
        const int64_t second = in.array.shape[axis] - first;
        out.array = Part(in.array, axis, 0, first);
        out.state = Part(in.state, axis, 0, first);
        rest.array = Part(in.array, axis, first, second);
        rest.state = Part(in.state, axis, first, second);
        program.statements.push_back(absl::StrCat(in.name, " -> ", out.name, ", ", rest.name, ", axis=", axis,
                                                  ", sizes=", ListText({first, second})));
        pool.push_back(std::move(rest));
        break;
      }
      case 2: {
        const Program::Variable other = pick();
        Shape a = in.array.shape, b = other.array.shape;
        if (a.size() != b.size() || in.array.dtype != other.array.dtype || in.reshaped || other.reshaped) continue;
        a[axis] = b[axis] = 0;
        if (a != b) continue;
        out.array = Joined({&in.array, &other.array}, axis);
        out.state = Joined({&in.state, &other.state}, axis);
        out.sources.insert(other.sources.begin(), other.sources.end());
        program.statements.push_back(absl::StrCat(in.name, ", ", other.name, " -> ", out.name, ", axis=", axis));
        break;
      }
      case 3:
      case 4: {
        if (!IsCastable(in.array.dtype)) continue;
        const DType dtype = kFloats[Below(random, 4)];
        out.array = Cast(in.array, dtype);
        program.statements.push_back(
            absl::StrCat(in.name, " -> ", out.name, ", dtype='", std::string(NameOf(dtype)), "'"));
        break;
      }
      default: {
        if (n != 2 || in.reshaped || in.array.shape[0] % 2 != 0 || in.array.shape[1] % 2 != 0) continue;
        const std::vector<int64_t> canonical = {in.array.shape[0] / 2, 2, in.array.shape[1] / 2, 2};
        out.array.shape.assign(canonical.begin(), canonical.end());
        out.state.shape = out.array.shape;
        out.reshaped = true;
        program.statements.push_back(absl::StrCat(in.name, " -> ", out.name, ", reshape=", ListText(canonical)));
        break;
      }
    }
    pool.push_back(std::move(out));
  }
  std::set<std::string> used;
  const int64_t targets = 1 + Below(random, 3);
  for (int64_t i = 0; i < targets; ++i) {
    Program::Variable target = pick();
    const std::string from = target.name;
    target.name = Below(random, 5) == 0 && target.sources.size() == 1 && from[0] == 's' ? from : absl::StrCat("w", i);
    if (std::any_of(program.targets.begin(), program.targets.end(),
                    [&](const auto& other) { return other.name == target.name; })) {
      continue;
    }
    if (target.name != from) program.statements.push_back(absl::StrCat(from, " -> ", target.name));
    used.insert(target.sources.begin(), target.sources.end());
    program.targets.push_back(std::move(target));
  }
  for (const Program::Variable& source : program.sources) {
    if (!used.contains(source.name)) program.statements.push_back(source.name + " -> _");
  }
  return program;
}

struct Contents {
  Model model;
  std::map<std::string, Bytes> bytes;
};

Contents ContentsOf(const std::vector<Program::Variable>& variables, bool states) {
  Contents contents;
  int number = 0;
  const auto add = [&](const std::string& name, const Array& array) {
    contents.model.tensors.push_back({name, array.dtype, array.shape, number++ % 3, -1, number % 2 == 0});
    contents.bytes[name] = Encoded(array);
  };
  for (const Program::Variable& variable : variables) {
    add(variable.name, variable.array);
    if (states) add(variable.name + ".moment1_0", variable.state);
  }
  contents.model.layers = 3;
  return contents;
}

struct Saved {
  Manifest manifest;
  Storage storage;
};

absl::StatusOr<Saved> SaveAll(const std::vector<RankMemory>& ranks, int bins) {
  SaveOptions options;
  options.bins_per_rank = bins;
  const auto plan = MakeSavePlan(InputsOf(ranks), options);
  if (!plan.ok()) return plan.status();
  Saved saved;
  std::vector<RankResult> results;
  if (std::string error = ExecuteSave(*plan, ranks, saved.storage, results); !error.empty()) {
    return absl::InternalError(error);
  }
  CommitInfo commit{"demo", 7, 1, "request", static_cast<uint32_t>(ranks.size()), absl::UnixEpoch(), "cairn test"};
  auto manifest = plan->MakeManifest(results, commit);
  if (!manifest.ok()) return manifest.status();
  saved.manifest = *std::move(manifest);
  return saved;
}

// Returns what failed; empty if nothing did, and "refused" if the mapping cannot cut a reshaped tensor.
std::string RunSeed(uint64_t seed, const std::function<void(int, std::string&)>& mutate = nullptr) {
  Random random(seed);
  const Program program = MakeProgram(random);
  const Contents from = ContentsOf(program.sources, program.states);
  const std::vector<RankMemory> sources = MakeRanks(from.bytes, MakeLayouts(from.model, seed * 2 + 1), true);
  const auto saved = SaveAll(sources, 1 + static_cast<int>(seed % 3));
  if (!saved.ok()) return saved.status().ToString();

  Contents to = ContentsOf(program.targets, program.states);
  auto mapping = std::make_shared<aoa::Config>();
  mapping->statements = program.statements;
  const bool extra = seed % 2 == 0;
  if (extra) {
    to.model.tensors.push_back({"extra", DType::kInt32, {5}, 0, -1, false});
    to.bytes["extra"] = Bytes(20, std::byte{0x55});
    mapping->statements.push_back("_ -> extra");
  }
  const std::vector<LayoutDescription> layouts = MakeLayouts(to.model, seed * 2 + 2);
  std::vector<RankMemory> targets = MakeRanks(to.bytes, layouts, false);
  const std::vector<RankMemory> wanted = MakeRanks(to.bytes, layouts, true);
  LoadOptions options;
  options.round_bytes = uint64_t{2} << 20;
  options.mapping = mapping;
  const auto plan = MakeLoadPlan(saved->manifest, InputsOf(targets), options);
  const std::string text = absl::StrJoin(mapping->statements, "; ");
  if (!plan.ok()) {
    return HasReason(plan.status(), Reason::kMappingShape) ? "refused" : plan.status().ToString() + "\n" + text;
  }
  // A source may go only into a part that is split off and not loaded.
  if (!plan->missing().empty() || (!plan->unexpected().empty() && text.find("sizes=") == std::string::npos)) {
    return absl::StrCat("missing ", absl::StrJoin(plan->missing(), ", "), "; unexpected ",
                        absl::StrJoin(plan->unexpected(), ", "), "\n", text);
  }
  if (std::string error = ExecuteLoad(*plan, saved->manifest, saved->storage, options.round_bytes, targets, mutate);
      !error.empty()) {
    return error + "\n" + text;
  }
  for (size_t r = 0; r < targets.size(); ++r) {
    size_t i = 0;
    for (const TensorDescription& tensor : targets[r].layout.tensors) {
      for (const ShardDescription& shard : tensor.shards) {
        if (targets[r].shards[i] != wanted[r].shards[i]) {
          return absl::StrCat("rank ", r, ": ", tensor.name, " ", ToString(shard.box), " differs\n", text);
        }
        ++i;
      }
    }
  }
  return "";
}

TEST(MappedLoadTest, MappedLoad_RandomMappings_EqualTheStatementsOnWholeArrays) {
  const uint64_t first = FromEnvironment("CAIRN_MAPPED_SEED", 1);
  const uint64_t seeds = FromEnvironment("CAIRN_MAPPED_SEEDS", 600);
  uint64_t refused = 0;
  for (uint64_t seed = first; seed < first + seeds; ++seed) {
    const std::string error = RunSeed(seed);
    refused += error == "refused";
    ASSERT_TRUE(error.empty() || error == "refused")
        << error << "\nreplay: CAIRN_MAPPED_SEED=" << seed << " CAIRN_MAPPED_SEEDS=1";
  }
  EXPECT_LE(refused * 10, seeds);
}

TEST(MappedLoadTest, MappedLoad_PlantedFault_IsCaught) {
  int planted = 0, caught = 0;
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    bool done = false;
    const std::string error = RunSeed(seed, [&](int, std::string& part) {
      v1::ReadPlan plan;
      if (done || !plan.ParseFromString(part)) return;
      for (v1::Copy& copy : *plan.mutable_copies()) {
        if (copy.casts_size() == 0) continue;
        copy.clear_casts();  // now the cast is forgotten
        done = true;
        part = plan.SerializeAsString();
        return;
      }
    });
    if (!done) continue;
    ++planted;
    caught += !error.empty();
  }
  EXPECT_GT(planted, 3);
  // If a cast has only zeros to work on, nothing notices that it is forgotten.
  EXPECT_GE(caught * 10, planted * 9);
}

// These are cases with names.

Saved SaveWhole(const std::vector<std::pair<std::string, Array>>& arrays) {
  Contents contents;
  LayoutDescription layout;
  for (const auto& [name, array] : arrays) {
    contents.bytes[name] = Encoded(array);
    layout.tensors.push_back({name, array.dtype, array.shape, {{WholeBox(array.shape), std::nullopt}}});
  }
  Canonicalize(layout);
  return *SaveAll(MakeRanks(contents.bytes, {layout}, true), 1);
}

Array Counting(DType dtype, Shape shape) {
  Array array{dtype, std::move(shape), {}};
  for (int64_t i = 0; i < *ElementCount(array.shape); ++i) array.values.push_back(static_cast<double>(i));
  return array;
}

absl::StatusOr<LoadPlan> PlanInto(const Saved& saved, std::vector<TensorDescription> wanted,
                                  std::vector<std::string> statements) {
  LayoutDescription layout;
  for (TensorDescription& tensor : wanted) {
    if (tensor.shards.empty()) tensor.shards.push_back({WholeBox(tensor.global_shape), std::nullopt});
  }
  layout.tensors = std::move(wanted);
  Canonicalize(layout);
  const std::string bytes = SerializeLayout(layout);
  const std::string digest = Digest(bytes);
  const RankInput input{0, "node", bytes, digest};
  LoadOptions options;
  auto mapping = std::make_shared<aoa::Config>();
  mapping->statements = std::move(statements);
  options.mapping = mapping;
  return MakeLoadPlan(saved.manifest, std::span(&input, 1), options);
}

TEST(MappedLoadTest, MappedLoad_OneSourceForManyTargets_IsReadOnce) {
  const Saved saved = SaveWhole({{"a", Counting(DType::kFloat32, {8, 4})}});
  const auto plan = PlanInto(
      saved,
      {{"x", DType::kFloat32, {8, 4}, {}}, {"y", DType::kFloat32, {4, 8}, {}}, {"z", DType::kBfloat16, {8, 4}, {}}},
      {"a -> x", "a^T -> y", "a -> z, dtype='bfloat16'"});
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->unique_bytes(), 8u * 4 * 4);
  ASSERT_NE(plan->mapping_report(), nullptr);
  EXPECT_EQ(plan->mapping_report()->matched, 3u);
}

TEST(MappedLoadTest, MappedLoad_StatesOfOneDtype_AreNotCast) {
  const Saved saved = SaveWhole({{"a", Counting(DType::kBfloat16, {4, 2})},
                                 {"a.w_0", Counting(DType::kFloat32, {4, 2})},
                                 {"a.beta1_pow_acc_0", Counting(DType::kFloat32, {1})}});
  const auto plan = PlanInto(saved,
                             {{"b", DType::kFloat16, {2, 4}, {}},
                              {"b.w_0", DType::kFloat32, {2, 4}, {}},
                              {"b.beta1_pow_acc_0", DType::kFloat32, {1}, {}}},
                             {"a -> c, dtype='float16'", "c^T -> b"});
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_THAT(plan->missing(), IsEmpty());
  EXPECT_THAT(plan->unexpected(), IsEmpty());
  v1::ReadPlan part;
  ASSERT_TRUE(part.ParseFromString(plan->PartFor(0)));
  int casts = 0;
  for (const v1::Copy& copy : part.copies()) casts += copy.casts_size() > 0;
  EXPECT_EQ(casts, 1);
  EXPECT_THAT(part.mapping_report(), HasSubstr("matched"));
}

TEST(MappedLoadTest, MappedLoad_MissingUnexpectedAndRemovedNames_AreTold) {
  const Saved saved = SaveWhole({{"a", Counting(DType::kFloat32, {2})},
                                 {"old", Counting(DType::kFloat32, {2})},
                                 {"old.moment1_0", Counting(DType::kFloat32, {2})},
                                 {"stray", Counting(DType::kFloat32, {2})}});
  const auto plan = PlanInto(saved,
                             {{"b", DType::kFloat32, {2}, {}},
                              {"b.moment1_0", DType::kFloat32, {2}, {}},
                              {"new", DType::kFloat32, {2}, {}},
                              {"nowhere", DType::kFloat32, {2}, {}}},
                             {"a -> b", "old -> _", "_ -> new"});
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_THAT(plan->missing(), ElementsAre("b.moment1_0", "nowhere"));
  EXPECT_THAT(plan->unexpected(), ElementsAre("stray"));
  EXPECT_THAT(plan->mapping_report()->added, ElementsAre("new"));
  EXPECT_THAT(plan->mapping_report()->removed, ElementsAre("old"));
}

TEST(MappedLoadTest, MappedLoad_WrongMappings_AreRefusedWithAllFaults) {
  const Saved saved = SaveWhole({{"a", Counting(DType::kFloat32, {4, 2})}, {"i", Counting(DType::kInt32, {4})}});
  const auto reason = [&](std::vector<TensorDescription> wanted, std::vector<std::string> statements) {
    const auto plan = PlanInto(saved, std::move(wanted), std::move(statements));
    return plan.ok() ? "accepted" : std::string(InfoOf(*ReasonOf(plan.status())).name);
  };
  EXPECT_EQ(reason({{"b", DType::kFloat32, {2, 4}, {}}}, {"a -> b"}), "MAPPING_RANGE");
  EXPECT_EQ(reason({{"b", DType::kBfloat16, {4, 2}, {}}}, {"a -> b"}), "MAPPING_DTYPE");
  EXPECT_EQ(reason({{"b", DType::kFloat32, {4, 2}, {}}}, {"a -> b, dtype='bfloat16'"}), "MAPPING_DTYPE");
  EXPECT_EQ(reason({{"b", DType::kFloat32, {4}, {}}}, {"i -> b, dtype='float32'"}), "MAPPING_DTYPE");
  EXPECT_EQ(reason({{"b", DType::kFloat32, {4, 2}, {}}}, {"a -> "}), "MAPPING_SYNTAX");
  EXPECT_EQ(reason({{"b", DType::kFloat32, {4, 2}, {}}}, {"a -> _", "a -> b"}), "MAPPING_UNCOVERED");
  const auto several = PlanInto(saved, {{"b", DType::kFloat32, {4, 2}, {}}}, {"x -> b", "y -> c"});
  EXPECT_THAT(std::string(several.status().message()), HasSubstr("'x'"));
  EXPECT_THAT(std::string(several.status().message()), HasSubstr("'y'"));
}

}  // namespace
}  // namespace cairn::testing

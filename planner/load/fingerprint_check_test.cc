#include "planner/load/fingerprint_check.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "common/status/fault.h"
#include "common/status/reason.h"
#include "common/tensor/fingerprint.h"
#include "planner/testing/executor.h"
#include "planner/testing/model.h"

namespace cairn::testing {
namespace {

uint64_t PartOf(const TensorDescription& tensor, const ShardDescription& shard, const Bytes& bytes) {
  if (bytes.empty()) return 0;
  const FlatRange range = shard.flat.value_or(FlatRange{0, shard.box.size()});
  FingerprintPart part(tensor.global_shape, shard.box, range, BytesOf(tensor.dtype));
  part.Add(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  return part.Value();
}

// Ranks that hold what a checkpoint has.
class Loaded {
 public:
  using Contents = std::map<std::string, Bytes>;

  Loaded(const Model& model, const std::vector<LayoutDescription>& layouts)
      : contents_(ContentsOf(model)), ranks_(MakeRanks(contents_, layouts, true)) {
    for (const Model::Tensor& tensor : model.tensors) {
      manifest_.tensors.push_back({tensor.name, tensor.dtype, tensor.shape, 0, 0});
    }
    std::ranges::sort(manifest_.tensors, {}, &ManifestTensor::name);
    for (const ManifestTensor& tensor : manifest_.tensors) {
      const TensorDescription whole = {tensor.name, tensor.dtype, tensor.global_shape, {}};
      const ShardDescription shard = {WholeBox(tensor.global_shape), std::nullopt};
      manifest_.summaries.push_back({PartOf(whole, shard, contents_.at(tensor.name)), {}});
    }
  }

  bool HasBytes(int rank, size_t shard) const { return !ranks_[static_cast<size_t>(rank)].shards[shard].empty(); }
  // Damages a byte of a shard.
  void Damage(int rank, size_t shard) {
    RankMemory& memory = ranks_[static_cast<size_t>(rank)];
    memory.shards[shard].back() ^= std::byte{1};
  }
  const Contents& contents() const { return contents_; }
  // Fills the arrays of all ranks, or of one, with other bytes than those of the checkpoint. Returns the names of the
  // tensors that are wrong now.
  std::set<std::string> Fill(const Contents& wrong, std::optional<size_t> rank = std::nullopt) {
    std::set<std::string> names;
    std::vector<LayoutDescription> layouts;
    for (const RankMemory& memory : ranks_) layouts.push_back(memory.layout);
    const std::vector<RankMemory> filled = MakeRanks(wrong, layouts, true);
    for (size_t each = 0; each < ranks_.size(); ++each) {
      if (rank.has_value() && each != *rank) continue;
      size_t number = 0;
      for (const TensorDescription& tensor : ranks_[each].layout.tensors) {
        for (size_t shard = 0; shard < tensor.shards.size(); ++shard, ++number) {
          if (ranks_[each].shards[number] != filled[each].shards[number]) names.insert(tensor.name);
        }
      }
      ranks_[each].shards = filled[each].shards;
    }
    return names;
  }
  std::vector<std::vector<uint64_t>> Parts() const {
    std::vector<std::vector<uint64_t>> parts;
    for (const RankMemory& rank : ranks_) {
      std::vector<uint64_t>& of_rank = parts.emplace_back();
      size_t number = 0;
      for (const TensorDescription& tensor : rank.layout.tensors) {
        for (const ShardDescription& shard : tensor.shards) {
          of_rank.push_back(PartOf(tensor, shard, rank.shards[number++]));
        }
      }
    }
    return parts;
  }
  FingerprintCheck Check() const {
    FaultList faults;
    LayoutSet set(InputsOf(ranks_), faults);
    EXPECT_TRUE(faults.empty()) << faults.ToStatus();
    const NameMatch match = MatchNames(manifest_, set, faults);
    EXPECT_TRUE(faults.empty()) << faults.ToStatus();
    return FingerprintCheck(manifest_, std::move(set), match);
  }
  absl::StatusOr<uint64_t> Compare() const { return Check().Compare(Parts()); }

 private:
  Contents contents_;
  std::vector<RankMemory> ranks_;
  Manifest manifest_;
};

Model TwoTensors() {
  Model model;
  model.tensors.push_back({"a", DType::kFloat32, {8, 4}, 0, -1, false});
  model.tensors.push_back({"b", DType::kInt64, {10}, 0, -1, false});
  return model;
}

LayoutDescription Holding(const std::vector<ShardDescription>& a, const std::vector<ShardDescription>& b) {
  LayoutDescription layout;
  if (!a.empty()) layout.tensors.push_back({"a", DType::kFloat32, {8, 4}, a});
  if (!b.empty()) layout.tensors.push_back({"b", DType::kInt64, {10}, b});
  return layout;
}

ShardDescription RowsOfA(int64_t begin, int64_t end) { return {{{begin, 0}, {end - begin, 4}}, std::nullopt}; }
ShardDescription PieceOfB(int64_t begin, int64_t end) { return {{{0}, {10}}, FlatRange{begin, end}}; }

void ExpectMismatch(const absl::Status& status, const std::string& names, const std::string& ranks) {
  EXPECT_TRUE(HasReason(status, Reason::kFingerprintMismatch)) << status;
  EXPECT_EQ(MetadataOf(status)["names"], names) << status;
  EXPECT_EQ(MetadataOf(status)["ranks"], ranks) << status;
}

TEST(FingerprintCheckTest, WhatWasSaved) {
  const Loaded loaded(TwoTensors(),
                      {Holding({RowsOfA(0, 3)}, {PieceOfB(0, 4)}), Holding({RowsOfA(3, 8)}, {PieceOfB(4, 10)})});
  EXPECT_EQ(loaded.Compare().value_or(0), 2);
}

TEST(FingerprintCheckTest, AShardThatOneRankHasAlone) {
  Loaded loaded(TwoTensors(), {Holding({RowsOfA(0, 3)}, {PieceOfB(0, 4)}), Holding({RowsOfA(3, 8)}, {}),
                               Holding({}, {PieceOfB(4, 10)})});
  loaded.Damage(1, 0);
  ExpectMismatch(loaded.Compare().status(), "a", "0, 1");  // one of them
}

TEST(FingerprintCheckTest, AReplicaThatDiffers) {
  const LayoutDescription low = Holding({RowsOfA(0, 3)}, {PieceOfB(0, 10)});
  const LayoutDescription high = Holding({RowsOfA(3, 8)}, {PieceOfB(0, 10)});
  Loaded loaded(TwoTensors(), {low, high, low, high});
  loaded.Damage(2, 0);
  ExpectMismatch(loaded.Compare().status(), "a", "2");
  // More ranks are wrong than right, and all of one tensor.
  Loaded most(TwoTensors(), {low, low, low, high});
  most.Damage(0, 1);
  most.Damage(1, 1);
  most.Damage(2, 1);
  ExpectMismatch(most.Compare().status(), "b", "0, 1, 2");
}

TEST(FingerprintCheckTest, ATensorOfWhichAPartIsLoaded) {
  const LayoutDescription part = Holding({RowsOfA(0, 3)}, {PieceOfB(0, 10)});
  Loaded loaded(TwoTensors(), {part, part, part});
  EXPECT_EQ(loaded.Compare().value_or(0), 1);
  loaded.Damage(1, 0);
  ExpectMismatch(loaded.Compare().status(), "a", "1");  // replicas are compared
}

TEST(FingerprintCheckTest, AnotherNumberOfParts) {
  const Loaded loaded(TwoTensors(), {Holding({RowsOfA(0, 8)}, {PieceOfB(0, 10)})});
  EXPECT_TRUE(HasReason(loaded.Check().Compare({{1}}).status(), Reason::kBadRequest));
  EXPECT_TRUE(HasReason(loaded.Check().Compare({}).status(), Reason::kBadRequest));
}

// Faults of a load, of which a checkpoint tells nothing. Each returns whether it has changed something, perhaps.
using Fault = bool (*)(Loaded::Contents& contents, Random& random);

Bytes& Any(Loaded::Contents& contents, Random& random) {
  auto any = contents.begin();
  std::advance(any, Below(random, static_cast<int64_t>(contents.size())));
  return any->second;
}

bool LeavesATensorOut(Loaded::Contents& contents, Random& random) {
  std::ranges::fill(Any(contents, random), std::byte{0});
  return true;
}

bool TakesAnotherTensor(Loaded::Contents& contents, Random& random) {
  Bytes& one = Any(contents, random);
  const Bytes other = Any(contents, random);
  if (one.size() != other.size()) return false;
  one = other;
  return true;
}

bool TakesThePlaceBehind(Loaded::Contents& contents, Random& random) {
  Bytes& one = Any(contents, random);
  if (one.size() < 32) return false;
  std::ranges::rotate(one, one.begin() + 16);
  return true;
}

bool LeavesTheEndOut(Loaded::Contents& contents, Random& random) {
  Bytes& one = Any(contents, random);
  std::fill(one.begin() + static_cast<std::ptrdiff_t>(one.size() / 2), one.end(), std::byte{0});
  return true;
}

// CAIRN_EXHAUSTIVE tries 3,000 layouts instead of 200, with 10,000 faults.
TEST(FingerprintCheckTest, FaultsOfLoads) {
  const uint64_t seeds = std::getenv("CAIRN_EXHAUSTIVE") != nullptr ? 3000 : 200;
  uint64_t found = 0;
  for (uint64_t seed = 1; seed <= seeds; ++seed) {
    const Model model = MakeModel(seed, ~uint64_t{0});
    const std::vector<LayoutDescription> layouts = MakeLayouts(model, seed);
    Random random(seed);
    for (const Fault fault : {&LeavesATensorOut, &TakesAnotherTensor, &TakesThePlaceBehind, &LeavesTheEndOut}) {
      for (const bool one_rank : {false, true}) {
        Loaded loaded(model, layouts);
        Loaded::Contents contents = loaded.contents();
        if (contents.empty() || !fault(contents, random)) continue;
        std::optional<size_t> rank;
        if (one_rank) rank = static_cast<size_t>(Below(random, static_cast<int64_t>(layouts.size())));
        const std::set<std::string> wrong = loaded.Fill(contents, rank);
        const absl::Status status = loaded.Compare().status();
        if (wrong.empty()) {
          EXPECT_TRUE(status.ok()) << seed << ": " << status;
          continue;
        }
        ASSERT_EQ(wrong.size(), 1);
        ASSERT_TRUE(HasReason(status, Reason::kFingerprintMismatch)) << seed << ": " << *wrong.begin() << status;
        EXPECT_EQ(MetadataOf(status)["names"], *wrong.begin()) << seed << ": " << status;
        const std::string ranks = ", " + MetadataOf(status)["ranks"] + ", ";
        if (one_rank && ranks.find(" more") == std::string::npos) {
          EXPECT_NE(ranks.find(", " + std::to_string(*rank) + ", "), std::string::npos) << seed << ": " << status;
        }
        ++found;
      }
    }
  }
  EXPECT_GT(found, 3 * seeds);
  std::printf("%d faults of loads were found\n", static_cast<int>(found));
}

TEST(FingerprintCheckTest, RandomLayouts) {
  int damaged = 0;
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    const Model model = MakeModel(seed, ~uint64_t{0});
    const std::vector<LayoutDescription> layouts = MakeLayouts(model, seed);
    Loaded loaded(model, layouts);
    const absl::StatusOr<uint64_t> equal = loaded.Compare();
    ASSERT_TRUE(equal.ok()) << seed << ": " << equal.status();
    ASSERT_EQ(*equal, loaded.Check().Compare(loaded.Parts()).value_or(0));
    // Each shard that has a byte is worth one.
    Random random(seed);
    const auto rank = static_cast<size_t>(Below(random, static_cast<int64_t>(layouts.size())));
    size_t shards = 0;
    for (const TensorDescription& tensor : layouts[rank].tensors) shards += tensor.shards.size();
    if (shards == 0) continue;
    const auto shard = static_cast<size_t>(Below(random, static_cast<int64_t>(shards)));
    if (!loaded.HasBytes(static_cast<int>(rank), shard)) continue;
    loaded.Damage(static_cast<int>(rank), shard);
    const absl::Status found = loaded.Compare().status();
    ASSERT_TRUE(HasReason(found, Reason::kFingerprintMismatch)) << seed << ": " << found;
    const std::string ranks = ", " + MetadataOf(found)["ranks"] + ", ";
    const bool all_named = ranks.find(" more") == std::string::npos;
    EXPECT_TRUE(!all_named || ranks.find(", " + std::to_string(rank) + ", ") != std::string::npos)
        << seed << ": " << found;
    ++damaged;
  }
  EXPECT_GT(damaged, 100);
}

}  // namespace
}  // namespace cairn::testing

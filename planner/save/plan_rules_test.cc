// Checks what plans promise, rule by rule, on layouts made for each rule.
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "cairn/v1/plan.pb.h"
#include "common/base/crc32c.h"
#include "common/base/digest.h"
#include "common/rpc/plan_part.h"
#include "planner/load/load_plan.h"
#include "planner/save/virtual_manifest.h"
#include "planner/testing/executor.h"

namespace cairn::testing {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;

std::vector<RankMemory> Ranks(std::vector<LayoutDescription> layouts) {
  std::vector<RankMemory> ranks;
  for (LayoutDescription& layout : layouts) {
    Canonicalize(layout);
    RankMemory& rank = ranks.emplace_back();
    rank.layout = layout;
    rank.serialized = SerializeLayout(layout);
    rank.digest = Digest(rank.serialized);
    for (const TensorDescription& tensor : layout.tensors) {
      for (const ShardDescription& shard : tensor.shards) {
        rank.shards.emplace_back(static_cast<size_t>(shard.box.size() * BytesOf(tensor.dtype)));
      }
    }
    for (const ObjectDescription& object : layout.objects) rank.objects[object.name] = Bytes(10, std::byte{1});
  }
  return ranks;
}

TensorDescription Part(std::string name, Shape global, Shape offset, Shape shape) {
  return {std::move(name), DType::kUint8, std::move(global), {{{std::move(offset), std::move(shape)}, std::nullopt}}};
}
TensorDescription Whole(std::string name, Shape shape) {
  return Part(std::move(name), shape, Shape(shape.size()), shape);
}

// Returns what every rank would report: the checksum of item i of a file is `base` + its number in the file.
std::vector<RankResult> Results(const SavePlan& plan) {
  std::vector<RankResult> results;
  for (int rank : plan.ranks()) {
    v1::WritePlan part;
    EXPECT_TRUE(part.ParseFromString(plan.PartFor(rank)));
    RankResult& result = results.emplace_back();
    result.rank = rank;
    for (const v1::PlannedFile& file : part.files()) {
      v1::FileResult& out = *result.result.add_files();
      out.set_file_bytes(file.header_bytes() + file.data_bytes());
      for (int i = 0; i < file.items_size(); ++i) {
        out.add_item_checksums(77);
        out.add_object_sizes(10);  // more than there are objects, which does no harm
      }
    }
  }
  return results;
}

std::string SharedLayoutNames(const FaultList& faults) {
  std::string text;
  for (const Fault& fault : faults.faults()) {
    absl::StrAppend(&text, std::string(InfoOf(fault.reason).name), " ", fault.name, " [");
    for (int rank : fault.ranks) absl::StrAppend(&text, rank, " ");
    absl::StrAppend(&text, "]; ");
  }
  return text;
}

TEST(CompareReplicasTest, CompareReplicas_HoldersDiffer_NamesItemWriterAndThem) {
  LayoutDescription layout;
  layout.tensors = {Whole("a", {8}), Whole("b", {8})};
  layout.objects = {{"o", 4096, false}, {"own", 4096, true}};
  const auto ranks = Ranks({layout, layout, layout});
  const auto plan = MakeSavePlan(InputsOf(ranks), SaveOptions());
  ASSERT_TRUE(plan.ok()) << plan.status();
  std::map<std::string, int> writer;
  for (const PlannedFileView& file : plan->Files()) {
    for (const PlannedItem& item : file.items) writer[item.item.name] = file.rank;
  }
  const auto holders = [&](uint32_t b_of_2, uint32_t o_of_1) {
    std::vector<HolderChecksums> all;
    for (int rank = 0; rank < 3; ++rank) {
      HolderChecksums& one = all.emplace_back();
      one.rank = rank;
      for (uint32_t item : {0u, 1u, 2u, 3u}) {  // a, b, o, own
        v1::ReplicaChecksum& checksum = one.checksums.emplace_back();
        checksum.set_item(item);
        checksum.set_crc32c(item == 1 && rank == 2   ? b_of_2
                            : item == 2 && rank == 1 ? o_of_1
                            : item == 3              ? static_cast<uint32_t>(rank)  // each rank's own one may differ
                                                     : 77);
        if (item >= 2) checksum.set_object_bytes(10);
      }
    }
    return all;
  };
  FaultList none;
  plan->CompareReplicas(Results(*plan), holders(77, 77), none, none);
  EXPECT_TRUE(none.empty()) << SharedLayoutNames(none);
  // One holder differs, in a report that is not the writer's own.
  FaultList faults;
  plan->CompareReplicas(Results(*plan), holders(78, 79), faults, faults);
  std::set<Reason> reasons;
  for (const Fault& fault : faults.faults()) {
    reasons.insert(fault.reason);
    const int differs = fault.name == "b" ? 2 : 1;
    EXPECT_EQ(std::set<int>(fault.ranks.begin(), fault.ranks.end()), (std::set<int>{writer[fault.name], differs}))
        << fault.message;
    EXPECT_NE(fault.message.find(absl::StrCat("rank ", writer[fault.name])), std::string::npos) << fault.message;
  }
  const size_t expected = (writer["b"] != 2 ? 1u : 0u) + (writer["o"] != 1 ? 1u : 0u);
  EXPECT_EQ(faults.total(), expected) << SharedLayoutNames(faults);
  EXPECT_EQ(reasons.contains(Reason::kReplicaMismatch), writer["b"] != 2);
  EXPECT_EQ(reasons.contains(Reason::kObjectMismatch), writer["o"] != 1);
}

// An agent may be broken, or hostile: what it reports is no success unless it fits what it had to write.
TEST(MakeManifestTest, MakeManifest_AReportThatDoesNotFitThePlan_IsRefused) {
  LayoutDescription first, second;
  first.tensors = {Whole("a", {8})};
  first.objects = {{"own", 4096, true}};
  second.tensors = {Whole("b", {8})};
  const auto plan = MakeSavePlan(InputsOf(Ranks({first, second})), SaveOptions());
  ASSERT_TRUE(plan.ok()) << plan.status();
  CommitInfo commit;
  commit.world_size = 2;
  ASSERT_TRUE(plan->MakeManifest(Results(*plan), commit).ok());
  const auto refused = [&](const std::string& what, auto&& change) {
    std::vector<RankResult> results = Results(*plan);
    change(results);
    const absl::Status status = plan->MakeManifest(results, commit).status();
    EXPECT_TRUE(HasReason(status, Reason::kBadRequest)) << what << ": " << status;
    EXPECT_EQ(MetadataOf(status)["rank"], "0") << what << ": " << status;
  };
  using Results = std::vector<RankResult>;
  refused("no report", [](Results& results) { results.erase(results.begin()); });
  refused("no files", [](Results& results) { results[0].result.clear_files(); });
  refused("another file", [](Results& results) { results[0].result.add_files(); });
  refused("an item less", [](Results& results) { results[0].result.mutable_files(0)->clear_item_checksums(); });
  refused("no length of the object",
          [](Results& results) { results[0].result.mutable_files(0)->clear_object_sizes(); });
  refused("a length beyond the slot",
          [](Results& results) { results[0].result.mutable_files(0)->set_object_sizes(0, ~uint64_t{0}); });
  refused("a file of another length",
          [](Results& results) { results[0].result.mutable_files(0)->set_file_bytes(~uint64_t{0}); });
}

TEST(CompareReplicasTest, CompareReplicas_ShardWasMoved_ComparesItWithItsOtherHolders) {
  // Ranks 0 and 1 hold everything and rank 2 nothing, so it gets a share to write.
  LayoutDescription heavy, light;
  for (int i = 0; i < 6; ++i) heavy.tensors.push_back(Whole(absl::StrCat("t", i), {static_cast<int64_t>(kMiB)}));
  light.objects = {{"o", 4096, true}};
  const auto ranks = Ranks({heavy, heavy, light});
  SaveOptions options;
  options.moves = MovePolicy::kAuto;
  const auto plan = MakeSavePlan(InputsOf(ranks), options);
  ASSERT_TRUE(plan.ok()) << plan.status();
  ASSERT_FALSE(plan->Moves().empty());
  const PlannedMove move = plan->Moves()[0];
  EXPECT_EQ(move.to, 2);
  const auto item = static_cast<uint32_t>(move.item.name[1] - '0');
  std::vector<HolderChecksums> holders(1);
  holders[0].rank = 1 - move.from;
  holders[0].checksums.emplace_back().set_item(item);
  holders[0].checksums[0].set_crc32c(78);
  FaultList objects, tensors;
  plan->CompareReplicas(Results(*plan), holders, objects, tensors);
  EXPECT_TRUE(objects.empty()) << SharedLayoutNames(objects);
  ASSERT_EQ(tensors.total(), 1u);
  EXPECT_EQ(tensors.faults()[0].name, move.item.name);
}

// Three ranks have one shared object "o" in slots of one size, and each has an object of its own.
class CompareObjectsTest : public ::testing::Test {
 protected:
  CompareObjectsTest() {
    LayoutDescription layout;
    layout.objects = {{"o", 4096, false}, {"own", 4096, true}};
    plan_ = MakeSavePlan(InputsOf(Ranks({layout, layout, layout})), SaveOptions());
    EXPECT_TRUE(plan_.ok()) << plan_.status();
    for (const PlannedFileView& file : plan_->Files()) {
      for (const PlannedItem& item : file.items) {
        if (item.item.name == "o") writer_ = file.rank;
      }
    }
    for (int rank = 0; rank < 3; ++rank) {
      v1::ReplicaChecksum& checksum = holders_.emplace_back(HolderChecksums{rank, {}}).checksums.emplace_back();
      checksum.set_item(0);
      checksum.set_crc32c(77);
      checksum.set_object_bytes(10);
    }
  }
  std::string Compare() {
    FaultList objects, tensors;
    plan_->CompareReplicas(Results(*plan_), holders_, objects, tensors);
    EXPECT_TRUE(tensors.empty());
    return SharedLayoutNames(objects);
  }
  v1::ReplicaChecksum& Of(int rank) { return holders_[static_cast<size_t>(rank)].checksums[0]; }

  absl::StatusOr<SavePlan> plan_;
  int writer_ = -1;
  std::vector<HolderChecksums> holders_;
};

TEST_F(CompareObjectsTest, CompareObjects_EqualOnes_AreNoFault) { EXPECT_EQ(Compare(), ""); }

TEST_F(CompareObjectsTest, CompareObjects_OtherLengthInTheSameSlot_IsAnotherObject) {
  const int other = (writer_ + 1) % 3;
  Of(other).set_object_bytes(9);  // its slot holds the same bytes, because the tenth is zero
  EXPECT_EQ(Compare(),
            absl::StrCat("OBJECT_MISMATCH o [", std::min(writer_, other), " ", std::max(writer_, other), " ]; "));
}

TEST_F(CompareObjectsTest, CompareObjects_OneRankDiffersFromMost_NamesIt) {
  const auto message = [&] {
    FaultList objects, tensors;
    plan_->CompareReplicas(Results(*plan_), holders_, objects, tensors);
    return objects.empty() ? std::string() : objects.faults().front().message;
  };
  const int one = (writer_ + 1) % 3, other = (writer_ + 2) % 3;
  Of(one).set_crc32c(5);
  EXPECT_TRUE(message().ends_with(absl::StrCat("; 2 of 3 ranks agree, without rank ", one))) << message();
  Of(other).set_crc32c(5);
  EXPECT_TRUE(message().ends_with(
      absl::StrCat("; 2 of 3 ranks agree, and what rank ", writer_, " wrote is not what they hold")))
      << message();
  Of(other).set_crc32c(6);
  EXPECT_TRUE(message().ends_with("; no more than half of the 3 ranks agree")) << message();
}

TEST_F(CompareObjectsTest, CompareObjects_ARankDoesNotReportOne_IsNotTakenForEqual) {
  const int other = (writer_ + 1) % 3;
  holders_[static_cast<size_t>(other)].checksums.clear();
  EXPECT_EQ(Compare(), absl::StrCat("BAD_REQUEST o [", other, " ]; "));
  // The result is the same if the rank reports nothing at all, but not if the rank is the writer.
  holders_.erase(holders_.begin() + other);
  EXPECT_EQ(Compare(), absl::StrCat("BAD_REQUEST o [", other, " ]; "));
  holders_.clear();
  for (int rank = 0; rank < 3; ++rank) {
    if (rank == writer_) continue;
    v1::ReplicaChecksum& checksum = holders_.emplace_back(HolderChecksums{rank, {}}).checksums.emplace_back();
    checksum.set_item(0);
    checksum.set_crc32c(77);
    checksum.set_object_bytes(10);
  }
  EXPECT_EQ(Compare(), "");
}

TEST(MovesTest, Moves_TwoHeavyRanks_StayInTheNodeAndMoveEachShardOnce) {
  // There are two nodes of two ranks; one rank of each is heavy.
  std::vector<LayoutDescription> layouts(4);
  for (int r : {0, 2}) {
    for (int i = 0; i < 8; ++i) {
      layouts[static_cast<size_t>(r)].tensors.push_back(
          Whole(absl::StrCat("r", r, ".t", i), {static_cast<int64_t>(kMiB) + i}));
    }
  }
  for (LayoutDescription& layout : layouts) layout.objects = {{"o", 4096, false}};
  const auto ranks = Ranks(layouts);
  auto inputs = InputsOf(ranks);
  for (size_t r = 0; r < 4; ++r) inputs[r].node = r < 2 ? "a" : "b";
  SaveOptions options;
  options.moves = MovePolicy::kAuto;
  const auto plan = MakeSavePlan(inputs, options);
  ASSERT_TRUE(plan.ok()) << plan.status();
  const auto bytes = plan->rank_bytes();
  const uint64_t total = 16 * kMiB + 2 * 28 + 4096;
  for (uint64_t load : bytes) EXPECT_LE(load, std::max(total / 4 * 102 / 100, kMiB + 8)) << load;
  for (const PlannedMove& move : plan->Moves()) EXPECT_EQ(move.from / 2, move.to / 2) << "to another node";
  std::map<std::string, int> written;
  for (const PlannedFileView& file : plan->Files()) {
    for (const PlannedItem& item : file.items) ++written[item.item.name];
  }
  for (const auto& [name, times] : written) EXPECT_EQ(times, 1) << name;
  EXPECT_EQ(written.size(), 17u);
  // One side gets exactly the shards that the other one gives, by number and by name.
  std::vector<v1::WritePlan> parts(4);
  for (int r = 0; r < 4; ++r) ASSERT_TRUE(parts[static_cast<size_t>(r)].ParseFromString(plan->PartFor(r)));
  size_t moved = 0;
  for (size_t r = 0; r < 4; ++r) {
    for (const v1::MovedShard& in : parts[r].incoming_shards()) {
      ++moved;
      const RankMemory& from = ranks[in.from_rank()];
      EXPECT_EQ(from.layout.tensors[in.from_shard()].name, in.name());
      int given = 0;
      for (const v1::MovedOut& out : parts[in.from_rank()].outgoing_shards()) {
        given += out.shard() == in.from_shard() && out.to_rank() == r ? 1 : 0;
      }
      EXPECT_EQ(given, 1) << in.name();
    }
  }
  EXPECT_EQ(moved, plan->Moves().size());
  EXPECT_GT(moved, 0u);
}

TEST(PartForTest, PartFor_OneRankChanges_LeavesTheOthersTheirParts) {
  std::vector<LayoutDescription> layouts(6);
  for (size_t r = 0; r < layouts.size(); ++r) {
    for (int i = 0; i < 3; ++i) {
      layouts[r].tensors.push_back(
          Part(absl::StrCat("w", i), {6 * 64, 32}, {static_cast<int64_t>(r) * 64, 0}, {64, 32}));
    }
  }
  const auto before = MakeSavePlan(InputsOf(Ranks(layouts)), SaveOptions());
  layouts[3].tensors.push_back(Whole("new", {100}));
  const auto after = MakeSavePlan(InputsOf(Ranks(layouts)), SaveOptions());
  ASSERT_TRUE(before.ok() && after.ok());
  EXPECT_NE(before->digest(), after->digest());
  for (int rank = 0; rank < 6; ++rank) {
    const std::string old = before->PartFor(rank), now = after->PartFor(rank);
    EXPECT_EQ(BodyDigestOf(old) == BodyDigestOf(now), rank != 3) << rank;
    if (rank != 3) {
      EXPECT_EQ(PartOfPlan(after->digest(), old), now);
    }
  }
  EXPECT_EQ(BodyDigestOf(""), "");
  EXPECT_EQ(BodyDigestOf("nothing of that kind, but long enough to be one"), "");
}

// Plans how `targets` would read a checkpoint of one tensor in `parts` row shards.
absl::StatusOr<LoadPlan> LoadOf(int64_t rows, int64_t columns, int parts, const std::vector<RankMemory>& targets,
                                const LoadOptions& options = LoadOptions()) {
  std::vector<LayoutDescription> layouts;
  for (int p = 0; p < parts; ++p) {
    const int64_t begin = rows * p / parts, end = rows * (p + 1) / parts;
    layouts.emplace_back().tensors = {Part("w", {rows, columns}, {begin, 0}, {end - begin, columns})};
  }
  const auto save = MakeSavePlan(InputsOf(Ranks(layouts)), SaveOptions());
  if (!save.ok()) return save.status();
  return MakeLoadPlan(VirtualManifest(*save), InputsOf(targets), options);
}

TEST(PartTest, Part_OfAnyRank_TellsTheWorldAndTheNumberOfAllFiles) {
  std::vector<LayoutDescription> layouts(3);
  for (int r = 0; r < 2; ++r) layouts[static_cast<size_t>(r)].tensors = {Part("w", {8, 8}, {4 * r, 0}, {4, 8})};
  const auto plan = MakeSavePlan(InputsOf(Ranks(layouts)), SaveOptions());
  ASSERT_TRUE(plan.ok()) << plan.status();
  for (int rank = 0; rank < 3; ++rank) {
    v1::WritePlan message;
    ASSERT_TRUE(message.ParseFromString(plan->PartFor(rank)));
    EXPECT_EQ(message.world_size(), 3u);
    EXPECT_EQ(message.total_files(), plan->Files().size());
  }
}

TEST(LoadRulesTest, LoadPlan_TensorOfAnotherShape_NamesStepAndRankInTheFormThatFits) {
  LayoutDescription saved, wanted;
  saved.tensors = {Whole("w", {64, 64})};
  wanted.tensors = {Whole("w", {64, 32})};
  const auto save = MakeSavePlan(InputsOf(Ranks({saved})), SaveOptions());
  ASSERT_TRUE(save.ok()) << save.status();
  Manifest source = VirtualManifest(*save);
  const absl::Status of_live_ranks = MakeLoadPlan(source, InputsOf(Ranks({wanted})), LoadOptions()).status();
  EXPECT_TRUE(HasReason(of_live_ranks, Reason::kShapeMismatch)) << of_live_ranks;
  EXPECT_FALSE(MetadataOf(of_live_ranks).contains("step"));
  source.job = "demo";
  source.step = 1200;
  const absl::Status of_a_step = MakeLoadPlan(source, InputsOf(Ranks({wanted})), LoadOptions()).status();
  EXPECT_TRUE(std::string(of_a_step.message()).starts_with("step 1200: tensor w ")) << of_a_step;
  EXPECT_TRUE(std::string(of_a_step.message()).ends_with("in 1 shard, the target in 1 shard on rank 0")) << of_a_step;
  EXPECT_EQ(MetadataOf(of_a_step).at("step"), "1200");
  EXPECT_EQ(MetadataOf(of_a_step).at("tensor"), "w");
}

TEST(LoadRulesTest, LoadPlan_StepWasSavedAnew_IsAnotherPlan) {
  LayoutDescription wants;
  wants.tensors = {Whole("w", {64, 64})};
  const auto save = MakeSavePlan(InputsOf(Ranks({wants})), SaveOptions());
  ASSERT_TRUE(save.ok()) << save.status();
  const Manifest before = VirtualManifest(*save);
  Manifest after = before;
  after.files[0].header_crc32c ^= 1;  // the checksum of the header changes if any byte does
  const auto digest = [&](const Manifest& manifest) {
    return MakeLoadPlan(manifest, InputsOf(Ranks({wants})), LoadOptions())->digest();
  };
  EXPECT_EQ(digest(before), digest(Manifest(before)));
  EXPECT_NE(digest(before), digest(after));
}

TEST(LoadRulesTest, LoadPlan_IdleRanks_NeverRead) {
  // Rank 1 wants nothing; ranks 0, 2 and 3 hold replicas.
  LayoutDescription wants, idle;
  wants.tensors = {Whole("w", {64, 1 << 18})};
  const auto plan = LoadOf(64, 1 << 18, 4, Ranks({wants, idle, wants, wants}));
  ASSERT_TRUE(plan.ok()) << plan.status();
  std::map<int, uint64_t> read;
  for (const LoadTotals::RankFile& one : plan->totals().reads) read[one.rank] += one.bytes;
  EXPECT_FALSE(read.contains(1));
  EXPECT_EQ(read.size(), 3u) << "the three that need it share the reading";
  EXPECT_EQ(plan->unique_bytes(), 16 * kMiB);
  for (const LoadTotals::RankPair& pair : plan->totals().copies) EXPECT_NE(pair.to, 1);
}

TEST(LoadRulesTest, LoadPlan_ObjectsPerRankInAnotherWorld_AreReadOnceForEveryRank) {
  std::vector<LayoutDescription> three(3), two(2), none(5);
  for (LayoutDescription& layout : three) layout.objects = {{"rng", 4096, true}, {"step", 4096, false}};
  const auto save = MakeSavePlan(InputsOf(Ranks(three)), SaveOptions());
  ASSERT_TRUE(save.ok()) << save.status();
  for (const auto& targets : {two, three, none}) {
    const auto plan = MakeLoadPlan(VirtualManifest(*save), InputsOf(Ranks(targets)), LoadOptions());
    ASSERT_TRUE(plan.ok()) << plan.status();
    EXPECT_EQ(plan->unique_bytes(), 4 * 4096u);
    for (size_t r = 0; r < targets.size(); ++r) {
      const auto part = ParseReadPlan(plan->PartFor(static_cast<int>(r)));
      ASSERT_TRUE(part.ok()) << part.status();
      std::set<uint32_t> ranks;
      int shared = 0;
      for (const v1::ReadObject& object : part->objects()) {
        if (object.per_rank()) {
          ranks.insert(object.rank());
        } else {
          ++shared;
        }
      }
      EXPECT_EQ(shared, 1);
      const std::set<uint32_t> all = {0, 1, 2}, own = {static_cast<uint32_t>(r)};
      EXPECT_EQ(ranks, targets.size() == 3 ? own : all);
    }
  }
}

TEST(LoadRulesTest, LoadPlan_SomeColumns_ReadsEachRunOnceAndNothingElse) {
  // For half of the columns there is one run for each row, with no byte twice and none too many. For all columns there
  // is one run.
  constexpr int64_t kRows = 1000, kColumns = 8192;
  LayoutDescription half, all;
  half.tensors = {Part("w", {kRows, kColumns}, {0, 0}, {kRows, kColumns / 2})};
  all.tensors = {Whole("w", {kRows, kColumns})};
  const auto count = [&](const LayoutDescription& layout) {
    const auto plan = LoadOf(kRows, kColumns, 1, Ranks({layout}));
    EXPECT_TRUE(plan.ok()) << plan.status();
    v1::ReadPlan part;
    EXPECT_TRUE(part.ParseFromString(plan->PartFor(0)));
    int reads = 0;
    uint64_t bytes = 0;
    for (const v1::ReadRound& round : part.rounds()) {
      reads += round.reads_size();
      for (const v1::Read& read : round.reads()) bytes += read.bytes();
    }
    EXPECT_EQ(bytes, plan->unique_bytes());
    return reads;
  };
  EXPECT_EQ(count(half), kRows);
  EXPECT_EQ(count(all), 1);
}

TEST(LoadRulesTest, LoadPlan_SameLayoutAfterMoves_ExchangesReplicasOnly) {
  std::vector<LayoutDescription> layouts(3);
  for (int i = 0; i < 9; ++i) layouts[0].tensors.push_back(Whole(absl::StrCat("t", i), {static_cast<int64_t>(kMiB)}));
  for (LayoutDescription& layout : layouts) layout.tensors.push_back(Whole("all", {500}));
  const auto ranks = Ranks(layouts);
  SaveOptions options;
  options.moves = MovePolicy::kAuto;
  const auto save = MakeSavePlan(InputsOf(ranks), options);
  ASSERT_TRUE(save.ok()) << save.status();
  ASSERT_FALSE(save->Moves().empty());
  const auto plan = MakeLoadPlan(VirtualManifest(*save), InputsOf(ranks), LoadOptions());
  ASSERT_TRUE(plan.ok()) << plan.status();
  uint64_t exchanged = 0;
  for (const LoadTotals::RankPair& pair : plan->totals().copies) exchanged += pair.bytes;
  EXPECT_EQ(exchanged, 1000u);
}

}  // namespace
}  // namespace cairn::testing

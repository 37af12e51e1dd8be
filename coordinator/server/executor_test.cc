#include "coordinator/server/executor.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <regex>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cairn/v1/plan.pb.h"
#include "common/base/digest.h"
#include "common/base/fake_clock.h"
#include "common/format/checkpoint_path.h"
#include "common/format/outcome.h"
#include "common/format/summary_columns.h"
#include "common/status/reason.h"
#include "planner/layout/layout_description.h"
#include "store/mirror/mirror.h"
#include "store/posix/posix_storage.h"
#include "store/storage/testing/fake_root_lock.h"

namespace cairn {
namespace {

constexpr char kJob[] = "demo";
using Names = std::vector<std::string>;

// Two ranks, which have a row of every tensor each, and real storage.
class ExecutorTest : public testing::Test {
 protected:
  ExecutorTest() {
    root_ = testing::TempDir() + "/executor-XXXXXX";
    EXPECT_NE(mkdtemp(root_.data()), nullptr);
    storage_ = *PosixStorage::Open(root_, false);
    EXPECT_TRUE(storage_->MakeDirectories(".cairn").ok());
    checkpoints_ = std::make_unique<CheckpointStore>(*storage_);
    attempts_ = std::make_unique<AttemptStore>(*storage_, *checkpoints_, clock_, lock_);
    deletions_ = std::make_unique<DeletionStore>(*storage_, *checkpoints_, clock_, lock_);
    plans_ = std::make_unique<PlanStore>(*storage_, layouts_, SaveOptions());
    executor_ = std::make_unique<Executor>(*checkpoints_, *attempts_, *deletions_, *plans_,
                                           *TransferSecret::Load(*storage_), clock_);
  }
  ~ExecutorTest() override { std::filesystem::remove_all(root_); }

  // The digests of the ranks' layouts, which are uploaded.
  std::vector<std::string> LayoutsOf(const Names& names) {
    std::vector<std::string> digests;
    for (int rank = 0; rank < 2; ++rank) {
      LayoutDescription layout;
      for (const std::string& name : names) {
        layout.tensors.push_back({name, DType::kFloat32, {2, 8}, {{{{rank, 0}, {1, 8}}, std::nullopt}}});
      }
      Canonicalize(layout);
      digests.push_back(Upload(layout));
    }
    return digests;
  }
  std::string Upload(const LayoutDescription& layout) {
    const std::string bytes = SerializeLayout(layout);
    EXPECT_TRUE(layouts_.Put(Digest(bytes), bytes).ok());
    return Digest(bytes);
  }
  PlannedSave PlanSaveOf(const std::vector<std::string>& layouts) {
    auto planned = executor_->Run(kJob, PlanSave{"key", layouts, {"node0", "node1"}});
    EXPECT_TRUE(planned.ok()) << planned.status();
    return *std::move(planned);
  }
  // Returns what both ranks report when they have written, with the checksum 77 for every item.
  MakeManifest Written(int64_t step, uint32_t attempt, const PlannedSave& plan) {
    MakeManifest action{step, attempt, plan.plan_digest, "request"};
    for (int rank = 0; rank < 2; ++rank) {
      v1::WritePlan part;
      EXPECT_TRUE(part.ParseFromString(**plans_->PartFor(plan.plan_digest, rank)));
      v1::WriteResult& result = action.result.emplace_back();
      for (const v1::PlannedFile& file : part.files()) {
        v1::FileResult& written = *result.add_files();
        written.set_file_bytes(file.header_bytes() + file.data_bytes());
        for (int i = 0; i < file.items_size(); ++i) written.add_item_checksums(77);
      }
      action.replica_checksum.emplace_back();
    }
    return action;
  }
  // Saves the step from its plan to its commit, or imports it.
  void Save(int64_t step, const Names& names, bool import = false) {
    const PlannedSave plan = PlanSaveOf(LayoutsOf(names));
    const auto reserved = executor_->Run(kJob, ReserveAttempt{.step = step, .plan_digest = plan.plan_digest});
    ASSERT_TRUE(reserved.ok()) << reserved.status();
    auto made = executor_->Run(kJob, Written(step, reserved->attempt, plan));
    ASSERT_TRUE(made.ok()) << made.status();
    if (import) {
      absl::StatusOr<Outcome> outcome = DecodeOutcome(*made->manifest);
      ASSERT_TRUE(outcome.ok()) << outcome.status();
      std::get<Manifest>(*outcome).writer = "cairn 1.0 import";
      made->manifest = std::make_shared<const std::string>(EncodeOutcome(*outcome));
    }
    for (const BinFile& bin : *made->bins) {
      const std::string path = absl::StrCat(root_, "/", AttemptDirectory(kJob, step, reserved->attempt), "/", bin.name);
      std::ofstream(path).close();
      std::filesystem::resize_file(path, bin.bytes);
    }
    const PutAnswer put = executor_->Run(
        kJob, PutOutcome{step, reserved->attempt, reserved->nonce, made->manifest, made->bins, absl::OkStatus(), ""});
    ASSERT_TRUE(put.standing.ok()) << put.standing.status();
    ASSERT_TRUE(put.standing->committed);
  }
  // Plans a load of the latest step, or of one.
  absl::StatusOr<PlannedLoad> Load(const Names& names, std::optional<int64_t> step = std::nullopt, bool strict = true) {
    return executor_->Run(kJob, PlanLoad{.step = step,
                                         .fallback = !step.has_value(),
                                         .layout = LayoutsOf(names),
                                         .node = {"node0", "node1"},
                                         .strict = strict});
  }
  void Damage(int64_t step) {
    std::ofstream(absl::StrCat(root_, "/", OutcomePath(kJob, step, 1)), std::ios::binary) << "garbage";
    checkpoints_ = std::make_unique<CheckpointStore>(*storage_);
    executor_ = std::make_unique<Executor>(*checkpoints_, *attempts_, *deletions_, *plans_,
                                           *TransferSecret::Load(*storage_), clock_);
  }

  std::string root_;
  std::unique_ptr<PosixStorage> storage_;
  FakeRootLock lock_;
  FakeClock clock_;
  LayoutStore layouts_{1 << 20};
  std::unique_ptr<CheckpointStore> checkpoints_;
  std::unique_ptr<AttemptStore> attempts_;
  std::unique_ptr<DeletionStore> deletions_;
  std::unique_ptr<PlanStore> plans_;
  std::unique_ptr<Executor> executor_;
};

TEST_F(ExecutorTest, Save_EveryActionInTurn_CanBeLoaded) {
  Save(10, {"a", "b"});
  Save(20, {"a", "b"});
  const auto latest = Load({"a", "b"});
  ASSERT_TRUE(latest.ok()) << latest.status();
  EXPECT_EQ(latest->step, 20);
  EXPECT_EQ(latest->world_size, 2);
  EXPECT_EQ(latest->older_step, 10);
  EXPECT_EQ(latest->unique_bytes, 2u * 2 * 8 * 4);
  EXPECT_EQ(Load({"a", "b"}, 10)->step, 10);
  EXPECT_EQ(Load({"a", "b"}, 10)->older_step, std::nullopt);
  EXPECT_TRUE(HasReason(Load({"a", "b"}, 30).status(), Reason::kNotCommitted));
  const auto recovered = executor_->Run(kJob, RecoverJob{});
  ASSERT_TRUE(recovered.ok()) << recovered.status();
  EXPECT_EQ(recovered->size(), 2);
}

TEST_F(ExecutorTest, Reserve_TheSaveLacksNames_IsRefusedUnlessThatIsAllowed) {
  Save(10, {"a", "b", "c"});
  const PlannedSave plan = PlanSaveOf(LayoutsOf({"b"}));
  ReserveAttempt reserve{.step = 20, .plan_digest = plan.plan_digest};
  const absl::Status refused = executor_->Run(kJob, reserve).status();
  EXPECT_TRUE(HasReason(refused, Reason::kNamesDropped)) << refused;
  EXPECT_EQ(MetadataOf(refused)["names"], "a, c");
  EXPECT_EQ(MetadataOf(refused)["last_committed"], "10");
  reserve.allow_dropped_names = true;
  EXPECT_TRUE(executor_->Run(kJob, reserve).ok());
}

TEST_F(ExecutorTest, Reserve_TheTrainingWentOnFromAnOlderStep_ComparesWithThatOne) {
  Save(10, {"a"});
  Save(20, {"a", "b"});
  const PlannedSave plan = PlanSaveOf(LayoutsOf({"a"}));
  ReserveAttempt reserve{.step = 30, .plan_digest = plan.plan_digest};
  EXPECT_TRUE(HasReason(executor_->Run(kJob, reserve).status(), Reason::kNamesDropped));
  reserve.left_behind = {20};
  EXPECT_TRUE(executor_->Run(kJob, reserve).ok());
}

TEST_F(ExecutorTest, Reserve_TheLastStepWasImported_ItsNamesAreNotMissed) {
  Save(10, {"a", "b"}, /*import=*/true);
  Save(20, {"b"});
  const PlannedSave plan = PlanSaveOf(LayoutsOf({"a"}));
  const ReserveAttempt reserve{.step = 30, .plan_digest = plan.plan_digest};
  const absl::Status refused = executor_->Run(kJob, reserve).status();
  EXPECT_EQ(MetadataOf(refused)["names"], "b") << "those of the job's own step are: " << refused;
}

TEST_F(ExecutorTest, PlanLoad_NamesAreMisspelt_SaysWhichAreNear) {
  Save(10, {"model.w", "optimizer.w"});
  const absl::Status refused = Load({"model.w", "optimiser.w"}).status();
  EXPECT_TRUE(HasReason(refused, Reason::kMissingNames)) << refused;
  EXPECT_EQ(refused.message(),
            "demo@10 lacks 1 name that the target wants; for 'optimiser.w', did you mean 'optimizer.w'? All of them: "
            "optimiser.w");
  EXPECT_EQ(Load({"model.w", "optimizer.w", "model.v"}).status().message().find("did you mean"), std::string::npos)
      << "what the target wants as well is not meant";
}

TEST_F(ExecutorTest, PlanLoad_ManyLongNamesAreMisspelt_SaysWhatIsMeantAndHowManyThereAre) {
  Names wanted, saved;
  for (int i = 100; i < 140; ++i) {
    const std::string block = absl::StrCat("model.decoder.layers.", i, ".self_attention.query_key_value.weight");
    saved.push_back(block);
    wanted.push_back(absl::StrCat(block, "s"));
  }
  Save(10, saved);
  const std::string text(Load(wanted).status().message());
  EXPECT_LT(text.size(), 512u) << text;
  EXPECT_NE(text.find(absl::StrCat("for '", wanted[0], "', did you mean '", saved[0], "'")), std::string::npos) << text;
  EXPECT_TRUE(std::regex_search(text, std::regex("All of them: " + wanted[0] + ".* and 3[0-9] more$"))) << text;
}

TEST_F(ExecutorTest, PlanLoad_TheTargetWantsMore_NamesWhatIsMissing) {
  Save(10, {"a"});
  const absl::Status refused = Load({"a", "x", "y"}).status();
  EXPECT_TRUE(HasReason(refused, Reason::kMissingNames)) << refused;
  EXPECT_EQ(MetadataOf(refused)["names"], "x, y");
  EXPECT_EQ(refused.message().find("did you mean"), std::string::npos) << refused;
  EXPECT_EQ(MetadataOf(refused)["step"], "10");
  const auto tolerant = Load({"a", "x", "y"}, std::nullopt, /*strict=*/false);
  ASSERT_TRUE(tolerant.ok()) << tolerant.status();
  EXPECT_EQ(tolerant->missing, (Names{"x", "y"}));
}

TEST_F(ExecutorTest, PlanLoad_TheTargetWantsLess_NamesWhatIsUnexpected) {
  Save(10, {"a", "b"});
  EXPECT_TRUE(HasReason(Load({"a"}).status(), Reason::kUnexpectedNames));
  EXPECT_EQ(Load({"a"}, std::nullopt, /*strict=*/false)->unexpected, (Names{"b"}));
}

TEST_F(ExecutorTest, PlanLoad_VeryManyNamesAreMissing_NamesSomeAndCountsTheRest) {
  Save(10, {"a"});
  Names wanted = {"a"};
  for (int i = 10; i < 40; ++i) wanted.push_back(absl::StrCat("x", i));
  const absl::Status refused = Load(wanted).status();
  EXPECT_EQ(MetadataOf(refused)["count"], "30");
  EXPECT_EQ(MetadataOf(refused)["names"], "x10, x11, x12, x13, x14, x15, x16, x17 and 22 more");
}

TEST_F(ExecutorTest, PlanLoad_TheStepIsDamaged_NamesTheOlderOneOrFallsBackToIt) {
  Save(10, {"a"});
  Save(20, {"a"});
  Damage(20);
  const absl::Status refused = Load({"a"}, 20).status();
  EXPECT_TRUE(HasReason(refused, Reason::kManifestCorrupt)) << refused;
  EXPECT_EQ(MetadataOf(refused)["older_step"], "10");
  const auto fallback = Load({"a"});
  ASSERT_TRUE(fallback.ok()) << fallback.status();
  EXPECT_EQ(fallback->step, 10);
  ASSERT_EQ(fallback->passed_over.size(), 1);
  EXPECT_EQ(fallback->passed_over[0].first, 20);
}

TEST_F(ExecutorTest, PlanLoad_TheOlderStepLacksFilesToo_NamesTheNextOneThatHasThem) {
  for (const int64_t step : {10, 20, 30}) Save(step, {"a"});
  std::filesystem::remove_all(absl::StrCat(root_, "/", AttemptDirectory(kJob, 20, 1)));
  Damage(30);
  const absl::Status refused = Load({"a"}, 30).status();
  EXPECT_TRUE(HasReason(refused, Reason::kManifestCorrupt)) << refused;
  EXPECT_EQ(MetadataOf(refused)["older_step"], "10");
}

TEST_F(ExecutorTest, PlanLoad_FromMemoryToMemory_HasAPlanOnEachSideAndReadsNothing) {
  const auto reshard = executor_->Run(
      kJob, PlanLoad{.source_layout = LayoutsOf({"a"}), .layout = LayoutsOf({"a"}), .node = {"node0", "node1"}});
  ASSERT_TRUE(reshard.ok()) << reshard.status();
  EXPECT_NE(reshard->source_plan_digest, "");
  EXPECT_EQ(reshard->total_bytes_read, 0);
  EXPECT_EQ(reshard->older_step, std::nullopt);
  EXPECT_TRUE(plans_->PartFor(reshard->plan_digest, 1).ok()) << "it is held";
}

TEST_F(ExecutorTest, PlanLoad_AgentsHaveTheirFilesInMemory_ReadWhatTheyWrote) {
  Save(10, {"a"});
  Names layouts = LayoutsOf({"a"});
  std::swap(layouts[0], layouts[1]);  // each rank wants what the other one has written
  const auto reads = [&](const std::vector<PlanLoad::Kept>& kept) {
    const auto load = executor_->Run(kJob, PlanLoad{.layout = layouts, .node = {"node0", "node1"}, .kept = kept});
    EXPECT_TRUE(load.ok()) << load.status();
    std::vector<Names> files(2);
    for (int rank = 0; rank < 2; ++rank) {
      v1::ReadPlan part;
      EXPECT_TRUE(part.ParseFromString(**plans_->PartFor(load->plan_digest, rank)));
      for (const v1::ReadFile& file : part.files())
        files[static_cast<size_t>(rank)].push_back(file.path().substr(18, 9));
    }
    return files;
  };
  const std::vector<Names> crossed = {{"rank00001"}, {"rank00000"}};
  EXPECT_EQ(reads({}), crossed);
  EXPECT_EQ(reads({{10, 1}, {10, 1}}), (std::vector<Names>{{"rank00000"}, {"rank00001"}}));
  EXPECT_EQ(reads({{0, 0}, {10, 1}}), (std::vector<Names>{{}, {"rank00000", "rank00001"}}));
  EXPECT_EQ(reads({{10, 2}, {11, 1}}), crossed) << "of another attempt, of another step";
}

TEST_F(ExecutorTest, PlanLoad_OneStepByTwoOperations_HasTwoTokens) {
  Save(10, {"a"});
  PlanLoad load{.layout = LayoutsOf({"a"}), .node = {"node0", "node1"}, .calls_digest = "first"};
  const auto first = executor_->Run(kJob, load);
  EXPECT_EQ(executor_->Run(kJob, load)->transfer_token, first->transfer_token) << "the same after a restart";
  load.calls_digest = "second";
  EXPECT_NE(executor_->Run(kJob, load)->transfer_token, first->transfer_token);
}

TEST_F(ExecutorTest, PlanLoad_RanksChangePlaces_CountsWhatCrossesBetweenMemories) {
  Save(10, {"a"});
  // Nodes keep each rank's row where it is written, so each rank reads its own and the other one takes it.
  std::vector<std::string> layouts = LayoutsOf({"a"});
  LayoutDescription whole;
  whole.tensors.push_back({"a", DType::kFloat32, {2, 8}, {{{{0, 0}, {2, 8}}, std::nullopt}}});
  Canonicalize(whole);
  layouts[0] = layouts[1] = Upload(whole);
  const auto crossing = [&](const std::vector<std::string>& memory) {
    return executor_->Run(kJob, PlanLoad{.layout = layouts, .node = {"node0", "node1"}, .memory = memory})
        ->transport_bytes;
  };
  EXPECT_EQ(crossing({"one", "two"}), 2u * 8 * 4) << "each byte is read once and goes to the other rank";
  EXPECT_EQ(crossing({"", ""}), 2u * 8 * 4) << "ranks that share their memory with nobody";
  EXPECT_EQ(crossing({"one", "one"}), 0u);
  EXPECT_EQ(crossing({}), 0u) << "nobody asks";
}

TEST_F(ExecutorTest, MakeManifest_ReplicasDiffer_WarnsOrRefuses) {
  // Both ranks hold the whole tensor; one of them writes it.
  LayoutDescription layout;
  layout.tensors.push_back({"w", DType::kFloat32, {4}, {{{{0}, {4}}, std::nullopt}}});
  const std::string digest = Upload(layout);
  const PlannedSave plan = PlanSaveOf({digest, digest});
  MakeManifest make = Written(10, 1, plan);
  const int holder = make.result[0].files_size() == 0 ? 0 : 1;
  v1::ReplicaChecksum& replica = make.replica_checksum[static_cast<size_t>(holder)].emplace_back();
  replica.set_item(0);
  replica.set_crc32c(77);
  EXPECT_TRUE(executor_->Run(kJob, make)->alarms.empty()) << "they are equal";
  make.replica_checksum[static_cast<size_t>(holder)][0].set_crc32c(78);
  const auto made = executor_->Run(kJob, make);
  ASSERT_TRUE(made.ok()) << made.status();
  ASSERT_EQ(made->alarms.size(), 1u);
  EXPECT_EQ(made->alarms[0].kind, alarm::kReplicasDiffer);
  EXPECT_NE(made->alarms[0].message.find("tensor w"), std::string::npos) << made->alarms[0].message;
  make.replicas_must_match = true;
  EXPECT_TRUE(HasReason(executor_->Run(kJob, make).status(), Reason::kReplicaMismatch));
}

// Sets what the writers report of their only tensor.
void Summarize(MakeManifest& make, uint64_t parts) {
  for (v1::WriteResult& result : make.result) {
    for (v1::FileResult& file : *result.mutable_files()) {
      file.clear_summaries();
      for (int i = 0; i < file.item_checksums_size(); ++i) {
        TensorSummary summary;
        summary.fingerprint_parts = parts++;
        AppendSummary(summary, *file.mutable_summaries());
      }
    }
  }
}

TEST_F(ExecutorTest, MakeManifest_SummariesOfAllRanks_StandInTheManifest) {
  const PlannedSave plan = PlanSaveOf(LayoutsOf({"a"}));
  MakeManifest make = Written(10, 1, plan);
  Summarize(make, 5);
  const auto outcome = DecodeOutcome(*executor_->Run(kJob, make)->manifest);
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  const auto& manifest = std::get<Manifest>(*outcome);
  ASSERT_EQ(manifest.summaries.size(), 1u);
  EXPECT_EQ(manifest.summaries[0].fingerprint_parts, 5u ^ 6u);
  EXPECT_EQ(manifest.histories.size(), 1u);
  make.result[1].mutable_files(0)->clear_summaries();
  EXPECT_TRUE(std::get<Manifest>(*DecodeOutcome(*executor_->Run(kJob, make)->manifest)).summaries.empty())
      << "an agent of an earlier version";
  make.result[1].mutable_files(0)->mutable_summaries()->add_zeros(1);
  EXPECT_TRUE(HasReason(executor_->Run(kJob, make).status(), Reason::kBadRequest));
}

TEST_F(ExecutorTest, MakeManifest_AFileOfAnotherLength_IsRefused) {
  const PlannedSave plan = PlanSaveOf(LayoutsOf({"a"}));
  MakeManifest make = Written(10, 1, plan);
  v1::FileResult& file = *make.result[1].mutable_files(0);
  file.set_file_bytes(file.file_bytes() + 1);
  EXPECT_TRUE(HasReason(executor_->Run(kJob, make).status(), Reason::kBadRequest));
}

// An executor whose coordinator has a mirror with the steps 1 and 2.
class MirroredExecutorTest : public ExecutorTest {
 protected:
  MirroredExecutorTest() {
    Save(1, {"a"});
    Save(2, {"a"});
    directory_ = root_ + "-mirror";
    std::filesystem::create_directories(directory_);
    std::filesystem::copy(absl::StrCat(root_, "/", kJob), absl::StrCat(directory_, "/", kJob),
                          std::filesystem::copy_options::recursive);
    Own(storage_->root());
    MirrorOptions options;
    options.address = directory_;
    options.root = storage_->root();
    options.settle = absl::ZeroDuration();
    options.open = [this](bool) -> absl::StatusOr<std::unique_ptr<Storage>> {
      if (down_) return MakeError(Reason::kStorageError, "it is down");
      return std::unique_ptr<Storage>(*PosixStorage::Open(directory_, false));
    };
    mirror_ = std::make_unique<Mirror>(options, *checkpoints_, clock_);  // its thread does not run
    executor_ = std::make_unique<Executor>(*checkpoints_, *attempts_, *deletions_, *plans_,
                                           *TransferSecret::Load(*storage_), clock_, mirror_.get());
  }
  ~MirroredExecutorTest() override {
    EXPECT_TRUE(mirror_->Stop(absl::Seconds(20)));
    std::filesystem::remove_all(directory_);
  }

  absl::StatusOr<PlannedLoad> Load(std::optional<int64_t> step, bool fallback = false, std::set<int64_t> damaged = {}) {
    PlanLoad load;
    load.damaged = std::move(damaged);
    load.step = step;
    load.fallback = fallback;
    load.layout = LayoutsOf({"a"});
    load.node = {"n", "n"};
    return executor_->Run(kJob, load);
  }
  // Says whose mirror it is.
  void Own(const std::string& root) {
    std::filesystem::create_directories(absl::StrCat(directory_, "/.cairn"));
    std::ofstream(absl::StrCat(directory_, "/", MirrorPlace::kOwnerPath)) << root << "\n";
  }
  void Lose(int64_t step) { std::filesystem::remove_all(absl::StrCat(root_, "/", StepDirectory(kJob, step))); }
  static std::string FileOf(int64_t step) {
    return absl::StrCat("/", AttemptDirectory(kJob, step, 1), "/rank00000-bin00.safetensors");
  }

  bool down_ = false;
  std::string directory_;
  std::unique_ptr<Mirror> mirror_;
};

TEST_F(MirroredExecutorTest, PlanLoad_TheMirrorIsOfAnotherRoot_TakesNothingFromIt) {
  Lose(1);
  Lose(2);
  Own("/another/root");
  EXPECT_TRUE(HasReason(Load(std::nullopt).status(), Reason::kRootInUse)) << Load(std::nullopt).status();
  std::filesystem::remove(absl::StrCat(directory_, "/", MirrorPlace::kOwnerPath));
  EXPECT_TRUE(HasReason(Load(2).status(), Reason::kRootInUse)) << "a root of its own";
}

TEST_F(MirroredExecutorTest, PlanLoad_TheRootHasTheStep_TakesIt) {
  down_ = true;
  for (const std::optional<int64_t> step : {std::optional<int64_t>(), std::optional<int64_t>(1)}) {
    const auto planned = Load(step);
    ASSERT_TRUE(planned.ok()) << planned.status();
    EXPECT_EQ(planned->step, step.value_or(2));
    EXPECT_EQ(planned->mirror, "");
  }
}

TEST_F(MirroredExecutorTest, PlanLoad_TheRootHasNothing_ReadsTheMirrorWithAllChecks) {
  Lose(1);
  Lose(2);
  const auto planned = Load(std::nullopt);
  ASSERT_TRUE(planned.ok()) << planned.status();
  EXPECT_EQ(planned->step, 2);
  EXPECT_EQ(planned->mirror, directory_);
  v1::ReadPlan part;
  ASSERT_TRUE(part.ParseFromString(**plans_->PartFor(planned->plan_digest, 0)));
  ASSERT_GT(part.files_size(), 0);
  for (const v1::ReadFile& file : part.files()) {
    EXPECT_TRUE(file.path().starts_with(absl::StrCat(directory_, "/", StepDirectory(kJob, 2), "/0001/")))
        << file.path();
    EXPECT_FALSE(file.unverified());
    EXPECT_GT(file.item_checksums_size(), 0);
  }
}

TEST_F(MirroredExecutorTest, PlanLoad_AnOlderStepIsAtTheRoot_IsTakenForTheLatest) {
  Lose(2);
  EXPECT_EQ(Load(std::nullopt)->step, 1);
  EXPECT_EQ(Load(std::nullopt)->mirror, "");
  EXPECT_EQ(Load(2)->mirror, directory_) << "who names a step gets it from where it is";
}

TEST_F(MirroredExecutorTest, PlanLoad_TheRootIsOlderThanTheMirror_TakesTheLatestOfBoth) {
  Lose(2);
  ASSERT_TRUE(mirror_->Start().ok());
  const auto latest = Load(std::nullopt);
  ASSERT_TRUE(latest.ok()) << latest.status();
  EXPECT_EQ(latest->step, 2);
  EXPECT_EQ(latest->mirror, directory_);
}

TEST_F(MirroredExecutorTest, PlanLoad_ALoadFoundDamage_TheNextOneTakesTheCopy) {
  EXPECT_EQ(Load(2)->mirror, "");
  EXPECT_EQ(Load(2, false, {2})->mirror, directory_);
  const auto latest = Load(std::nullopt, true, {2});
  EXPECT_EQ(latest->step, 2);
  EXPECT_EQ(latest->mirror, directory_);
  EXPECT_EQ(Load(1, false, {2})->mirror, "");
  std::filesystem::remove(directory_ + FileOf(2));
  EXPECT_EQ(Load(2, false, {2})->mirror, "") << "there is no better one";
  EXPECT_EQ(Load(std::nullopt, false, {2})->step, 2) << "who wants no other one is told of the damage again";
  EXPECT_EQ(Load(std::nullopt, true, {2})->step, 1);
}

TEST_F(MirroredExecutorTest, ReserveAttempt_OnlyTheMirrorHasTheStep_IsRefusedUnlessItIsLeftBehind) {
  Lose(2);
  ASSERT_TRUE(mirror_->Start().ok());
  ASSERT_EQ(Load(std::nullopt)->step, 2);
  ReserveAttempt save{2};
  save.plan_digest = PlanSaveOf(LayoutsOf({"a"})).plan_digest;
  const absl::Status refused = executor_->Run(kJob, save).status();
  EXPECT_TRUE(HasReason(refused, Reason::kStepCommitted)) << refused;
  save.overwrite = true;
  EXPECT_EQ(executor_->Run(kJob, save)->attempt, 2u) << "above that of the mirror";
  ASSERT_TRUE(executor_->Run(kJob, ChangeSteps{PinStep{2}}).ok());
  EXPECT_TRUE(HasReason(executor_->Run(kJob, save).status(), Reason::kCheckpointPinned));
  save.overwrite = false;
  save.resumed = ResumePoint{7, 1};
  EXPECT_TRUE(executor_->Run(kJob, save).ok()) << "the training has resumed from step 1";
}

TEST_F(MirroredExecutorTest, Change_OnlyTheMirrorHasTheStep_IsDoneThereOrRefused) {
  Lose(2);
  ASSERT_TRUE(mirror_->Start().ok());
  ASSERT_EQ(Load(std::nullopt)->step, 2);
  ASSERT_TRUE(executor_->Run(kJob, ChangeSteps{TagStep{"gold", 2}}).ok());
  EXPECT_TRUE(HasReason(executor_->Run(kJob, ChangeSteps{TagStep{"gold", 1}}).status(), Reason::kBadRequest))
      << "another step has it";
  EXPECT_TRUE(
      HasReason(executor_->Run(kJob, ChangeSteps{DeleteStep{2, "a person"}}).status(), Reason::kCheckpointPinned));
  EXPECT_EQ(executor_->Run(kJob, ChangeSteps{TagStep{"gold"}})->untagged, std::vector<int64_t>{2});
  const auto deleted = executor_->Run(kJob, ChangeSteps{DeleteStep{2, "a person"}});
  ASSERT_TRUE(deleted.ok()) << deleted.status();
  EXPECT_TRUE(deleted->only_at_mirror);
  EXPECT_EQ(Load(std::nullopt)->step, 1);
  EXPECT_TRUE(HasReason(executor_->Run(kJob, ChangeSteps{DeleteStep{9, "a person"}}).status(), Reason::kNotCommitted));
}

TEST_F(MirroredExecutorTest, Change_NobodyKnowsWhetherTheMirrorHasTheStep_IsAnError) {
  Lose(2);
  down_ = true;
  for (const ChangeSteps& change : {ChangeSteps{DeleteStep{2, "a person"}}, ChangeSteps{PinStep{2}}}) {
    EXPECT_TRUE(HasReason(executor_->Run(kJob, change).status(), Reason::kStorageError));
  }
}

TEST_F(MirroredExecutorTest, PlanLoad_AFileIsMissing_TakesTheCopyOfAStepThatIsNamed) {
  std::filesystem::remove(root_ + FileOf(2));
  EXPECT_EQ(Load(2)->mirror, directory_);
  for (const bool fallback : {false, true}) {
    EXPECT_EQ(Load(std::nullopt, fallback)->step, 2) << "it is the latest, wherever it is whole";
    EXPECT_EQ(Load(std::nullopt, fallback)->mirror, directory_);
  }
  std::filesystem::remove(directory_ + FileOf(2));
  EXPECT_TRUE(HasReason(Load(2).status(), Reason::kFileMissing));
  EXPECT_TRUE(HasReason(Load(std::nullopt).status(), Reason::kFileMissing))
      << "it must not pass over damage in silence";
  const auto older = Load(std::nullopt, /*fallback=*/true);
  EXPECT_EQ(older->step, 1);
  EXPECT_EQ(older->mirror, "");
  EXPECT_EQ(older->passed_over.size(), 1u);
}

TEST_F(MirroredExecutorTest, PlanLoad_APersonDeletedTheStep_IsNotFound) {
  ASSERT_TRUE(executor_->Run(kJob, ChangeSteps{DeleteStep{1, "a person"}}).ok());
  EXPECT_TRUE(HasReason(Load(1).status(), Reason::kNotCommitted));
  Lose(2);
  EXPECT_EQ(Load(std::nullopt)->step, 2);
}

TEST_F(MirroredExecutorTest, PlanLoad_TheMirrorDoesNotAnswer_IsNoAnswerThatNothingIsThere) {
  Lose(1);
  Lose(2);
  down_ = true;
  const absl::Status refused = Load(std::nullopt).status();
  EXPECT_TRUE(HasReason(refused, Reason::kStorageError)) << refused;
  EXPECT_NE(MetadataOf(refused)["next"], "");
  down_ = false;
  std::filesystem::remove_all(absl::StrCat(directory_, "/", kJob));
  EXPECT_TRUE(HasReason(Load(std::nullopt).status(), Reason::kNotCommitted));
}

TEST_F(MirroredExecutorTest, Save_AfterTheRootWasLost_ContinuesTheNumbersOfTheMirror) {
  absl::StatusOr<Outcome> before = DecodeOutcome(*storage_->Read(OutcomePath(kJob, 2, 1), 1 << 20));
  std::get<Manifest>(*before).lineage.sequence = 8;
  const std::string path = absl::StrCat(directory_, "/", OutcomePath(kJob, 2, 1));
  std::ofstream(path, std::ios::binary) << EncodeOutcome(*before);
  Lose(1);
  Lose(2);
  ASSERT_TRUE(Load(std::nullopt).ok());
  const PlannedSave plan = PlanSaveOf(LayoutsOf({"a"}));
  const auto made = executor_->Run(kJob, Written(3, 1, plan));
  ASSERT_TRUE(made.ok()) << made.status();
  const absl::StatusOr<Outcome> after = DecodeOutcome(*made->manifest);
  EXPECT_EQ(std::get<Manifest>(*after).lineage.sequence, 9u);
}

}  // namespace
}  // namespace cairn

#include "coordinator/server/plan_store.h"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/digest.h"
#include "common/status/reason.h"
#include "planner/layout/layout_description.h"
#include "store/posix/posix_storage.h"

namespace {

// Calls of this process. Tests run one after the other.
std::atomic<int> fsyncs = 0;
std::atomic<int> renames = 0;

}  // namespace

// This comes before the C library's.
extern "C" int fsync(int fd) {
  static const auto real = reinterpret_cast<int (*)(int)>(dlsym(RTLD_NEXT, "fsync"));
  ++fsyncs;
  return real(fd);
}
extern "C" int renameat(int from, const char* name, int to, const char* new_name) noexcept {
  static const auto real = reinterpret_cast<int (*)(int, const char*, int, const char*)>(dlsym(RTLD_NEXT, "renameat"));
  ++renames;
  return real(from, name, to, new_name);
}

namespace cairn {
namespace {

// The rows of one tensor, and an object of each rank's own.
std::string LayoutOf(int rank, int ranks) {
  LayoutDescription layout;
  layout.tensors.push_back({"w", DType::kFloat32, {ranks, 8}, {{{{rank, 0}, {1, 8}}, std::nullopt}}});
  layout.objects.push_back({"rng", 4096, true});
  Canonicalize(layout);
  return SerializeLayout(layout);
}

class PlanStoreTest : public testing::Test {
 protected:
  PlanStoreTest() {
    root_ = testing::TempDir() + "/plans-XXXXXX";
    EXPECT_NE(mkdtemp(root_.data()), nullptr);
    storage_ = *PosixStorage::Open(root_, false);
  }
  ~PlanStoreTest() override { std::filesystem::remove_all(root_); }

  void MakeWorld(int ranks) {
    layouts_.clear();
    digests_.clear();
    nodes_.clear();
    for (int rank = 0; rank < ranks; ++rank) {
      layouts_.push_back(LayoutOf(rank, ranks));
      digests_.push_back(Digest(layouts_.back()));
      nodes_.push_back(absl::StrCat("node", rank / 8));
    }
  }
  void Upload(LayoutStore& store) {
    for (size_t i = 0; i < layouts_.size(); ++i) ASSERT_TRUE(store.Put(digests_[i], layouts_[i]).ok());
  }
  // Plans and keeps the world; returns the plan's digest.
  std::string Keep(PlanStore& plans) {
    const auto plan = plans.MakeSave(digests_, nodes_);
    EXPECT_TRUE(plan.ok()) << plan.status();
    EXPECT_TRUE(plans.Persist(plan->digest(), digests_, nodes_).ok());
    return plan->digest();
  }
  std::vector<std::string> Files() const {
    std::vector<std::string> files;
    for (const auto& entry : std::filesystem::directory_iterator(root_ + "/.cairn/plans")) {
      files.push_back(entry.path());
    }
    return files;
  }

  std::string root_;
  std::unique_ptr<PosixStorage> storage_;
  std::vector<std::string> layouts_, digests_, nodes_;
};

TEST_F(PlanStoreTest, MakeSave_OneLayoutChanged_TakesOverTheOtherRanksFromTheNearestPlan) {
  LayoutStore layouts(1 << 20);
  PlanStore plans(*storage_, layouts, SaveOptions());
  MakeWorld(16);
  Upload(layouts);
  ASSERT_TRUE(plans.MakeSave(digests_, nodes_).ok());
  const std::vector<std::string> before = digests_;
  MakeWorld(4);  // another job's plan, which is used last
  Upload(layouts);
  ASSERT_TRUE(plans.MakeSave(digests_, nodes_).ok());

  MakeWorld(16);
  LayoutDescription changed;
  changed.tensors.push_back({"w", DType::kFloat32, {16, 8}, {{{{5, 0}, {1, 8}}, std::nullopt}}});
  changed.objects.push_back({"rng", 8192, true});
  Canonicalize(changed);
  layouts_[5] = SerializeLayout(changed);
  digests_[5] = Digest(layouts_[5]);
  Upload(layouts);
  const auto plan = plans.MakeSave(digests_, nodes_);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->ReusedRanks(), 15u);
  EXPECT_EQ(plan->total_bytes(), plans.MakeSave(before, nodes_)->total_bytes() + 4096);
}

TEST_F(PlanStoreTest, Persist_ManyPlans_AreBoundedWhileTheCoordinatorRuns) {
  LayoutStore layouts(1 << 20);
  PlanStore plans(*storage_, layouts, SaveOptions());
  ASSERT_TRUE(plans.Recover().ok());
  const std::string shared = Digest("shared");
  ASSERT_TRUE(layouts.Put(shared, "shared").ok());
  std::string newest;
  for (int i = 0; i < 100; ++i) {
    const std::string bytes = absl::StrCat("layout ", i);
    newest = Digest(bytes);
    ASSERT_TRUE(layouts.Put(newest, bytes).ok());
    ASSERT_TRUE(plans.Persist(Digest(absl::StrCat("plan ", i)), {shared, newest}, {"", ""}).ok());
    layouts.Drop(newest);
    ASSERT_LE(Files().size(), 16u);
  }
  // Files that an older plan shares with a newer one stay; a coordinator that starts finds the newest.
  LayoutStore found(1 << 20);
  PlanStore next(*storage_, found, SaveOptions());
  const auto recovered = next.Recover();
  ASSERT_TRUE(recovered.ok()) << recovered.status();
  EXPECT_NE(found.Get(shared), nullptr);
  EXPECT_NE(found.Get(newest), nullptr);
}

TEST_F(PlanStoreTest, Persist_FirstPlan_CostsTheSameCallsForAnyNumberOfRanks) {
  for (const int ranks : {2, 1000}) {
    std::filesystem::remove_all(root_ + "/.cairn");
    MakeWorld(ranks);
    LayoutStore layouts(64 << 20);
    Upload(layouts);
    const auto storage = *PosixStorage::Open(root_, false);
    PlanStore plans(*storage, layouts, SaveOptions());
    fsyncs = renames = 0;
    const std::string digest = Keep(plans);
    // The names of two directories, the file, and its name.
    EXPECT_LE(fsyncs, 4) << ranks;
    EXPECT_EQ(renames, 1) << ranks;
    EXPECT_EQ(Files().size(), 1u);
    fsyncs = 0;
    EXPECT_TRUE(plans.Persist(digest, digests_, nodes_).ok());
    EXPECT_EQ(fsyncs, 0) << "it is there already";
  }
}

TEST_F(PlanStoreTest, FindSave_AfterARestart_MakesTheSamePlanOfWhatIsOnDisk) {
  MakeWorld(20);
  std::string digest;
  std::string part;
  {
    LayoutStore layouts(1 << 20);
    Upload(layouts);
    PlanStore plans(*storage_, layouts, SaveOptions());
    digest = Keep(plans);
    part = **plans.PartFor(digest, 7);
  }
  LayoutStore none(1 << 20);
  PlanStore cold(*storage_, none, SaveOptions());
  EXPECT_EQ(**cold.PartFor(digest, 7), part);
  EXPECT_EQ(none.size(), 0u);
  LayoutStore found(1 << 20);
  PlanStore next(*storage_, found, SaveOptions());
  EXPECT_EQ(next.Recover().value().size(), 20u);
  EXPECT_EQ(found.size(), 20u);
  EXPECT_EQ(**next.PartFor(digest, 7), part);
  PlanStore other(*storage_, found, SaveOptions{.bins_per_rank = 5});
  EXPECT_TRUE(HasReason(other.FindSave(digest).status(), Reason::kPlanUnknown));
}

TEST_F(PlanStoreTest, Recover_DamagedPlanOrFilesOfAnEarlierForm_AreMadeAnew) {
  MakeWorld(20);
  LayoutStore layouts(1 << 20);
  Upload(layouts);
  PlanStore plans(*storage_, layouts, SaveOptions());
  const std::string digest = Keep(plans);
  const std::string path = Files().at(0);
  const std::string directory = root_ + "/.cairn/plans/";
  // The form before: a text for the plan, and a file for each layout.
  std::ofstream(directory + DigestHex(Digest("old")) + ".plan") << "cairn plan 1\nbins 2 moves never\n"
                                                                << DigestHex(digests_[0]) << " \n";
  for (int i = 0; i < 20; ++i) {
    std::ofstream(directory + DigestHex(digests_[static_cast<size_t>(i)]) + ".layout")
        << layouts_[static_cast<size_t>(i)];
  }
  std::filesystem::create_directories(directory + "stray/inside");
  std::filesystem::create_symlink(path, directory + DigestHex(Digest("link")) + ".plan");
  {
    LayoutStore found(1 << 20);
    PlanStore next(*storage_, found, SaveOptions());
    fsyncs = 0;
    EXPECT_EQ(next.Recover().value().size(), 20u);
    EXPECT_LE(fsyncs, 4);
    EXPECT_EQ(Files(), std::vector<std::string>{path});
    EXPECT_TRUE(HasReason(next.FindSave(Digest("old")).status(), Reason::kPlanUnknown));
  }
  // A flipped bit of one layout costs that layout; without it the plan is not known.
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(-1, std::ios::end);
  file.put('\x7f');
  file.close();
  {
    LayoutStore found(1 << 20);
    PlanStore next(*storage_, found, SaveOptions());
    EXPECT_EQ(next.Recover().value().size(), 19u);
    EXPECT_TRUE(HasReason(next.FindSave(digest).status(), Reason::kPlanUnknown));
    // Layouts that agents upload again make the same plan, and the file is whole again.
    Upload(found);
    EXPECT_EQ(Keep(next), digest);
  }
  std::filesystem::resize_file(path, 100);
  LayoutStore found(1 << 20);
  PlanStore next(*storage_, found, SaveOptions());
  EXPECT_TRUE(next.Recover().value().empty());
  EXPECT_TRUE(Files().empty());
  Upload(found);
  EXPECT_EQ(Keep(next), digest);
  EXPECT_EQ(Files(), std::vector<std::string>{path});
}

TEST_F(PlanStoreTest, Persist_LayoutGoneMeanwhile_IsAnErrorAndOthersAreKept) {
  MakeWorld(4);
  LayoutStore layouts(1 << 20);
  Upload(layouts);
  PlanStore plans(*storage_, layouts, SaveOptions());
  layouts.Drop(digests_[2]);
  const absl::Status gone = plans.Persist(Digest("gone"), digests_, nodes_);
  EXPECT_TRUE(HasReason(gone, Reason::kPlanUnknown)) << gone;
  Upload(layouts);
  Keep(plans);
  EXPECT_EQ(Files().size(), 1u);
}

TEST_F(PlanStoreTest, Plans_AboveTheirMemory_AreTheTwoUsedLast) {
  LayoutStore layouts(1 << 20);
  PlanStore plans(*storage_, layouts, SaveOptions(), /*plan_bytes=*/1000);
  std::vector<std::string> made;
  for (const int ranks : {40, 41, 42, 43}) {
    MakeWorld(ranks);
    Upload(layouts);
    made.push_back(plans.MakeSave(digests_, nodes_)->digest());
  }
  EXPECT_TRUE(HasReason(plans.FindSave(made[0]).status(), Reason::kPlanUnknown));
  EXPECT_TRUE(HasReason(plans.FindSave(made[1]).status(), Reason::kPlanUnknown));
  EXPECT_TRUE(plans.FindSave(made[2]).ok());
  EXPECT_TRUE(plans.FindSave(made[3]).ok());
}

// So many jobs save and load in turn as one coordinator may serve.
TEST_F(PlanStoreTest, Plans_ManyAreHeld_EachIsFound) {
  constexpr int kJobs = 100;
  LayoutStore layouts(1 << 20);
  PlanStore plans(*storage_, layouts, SaveOptions(), /*plan_bytes=*/1000);
  ASSERT_TRUE(plans.Recover().ok());
  std::vector<SavePlan> saves;
  std::vector<ReshardPlan> reshards;
  std::vector<std::shared_ptr<const void>> holds;
  for (int ranks = 1; ranks <= kJobs; ++ranks) {
    MakeWorld(ranks);
    Upload(layouts);
    saves.push_back(*plans.MakeSave(digests_, nodes_));
    holds.push_back(plans.HoldSave(saves.back().digest(), digests_, nodes_));
    reshards.push_back(*plans.MakeReshard(digests_, digests_, nodes_));
    holds.push_back(plans.HoldReshard(reshards.back()));
  }
  const auto expect_parts = [&](const std::string& digest, const auto& plan) {
    const auto part = plans.PartFor(digest, 0);
    ASSERT_TRUE(part.ok()) << part.status();
    EXPECT_EQ(**part, plan.PartFor(0));
  };
  for (int i = 0; i < kJobs; ++i) {
    expect_parts(saves[i].digest(), saves[i]);
    expect_parts(reshards[i].source.digest(), reshards[i].source);
    expect_parts(reshards[i].load.digest(), reshards[i].load);
  }
  holds.clear();
  for (int ranks = kJobs + 1; ranks <= 2 * kJobs; ++ranks) {
    MakeWorld(ranks);
    Upload(layouts);
    ASSERT_TRUE(plans.MakeReshard(digests_, digests_, nodes_).ok());
  }
  EXPECT_TRUE(HasReason(plans.FindSave(saves[0].digest()).status(), Reason::kPlanUnknown));
  EXPECT_TRUE(HasReason(plans.PartFor(reshards[0].load.digest(), 0).status(), Reason::kPlanUnknown));
}

TEST_F(PlanStoreTest, PartFor_AnyRank_IsWhatThePlanSays) {
  MakeWorld(50);
  LayoutStore layouts(1 << 20);
  Upload(layouts);
  PlanStore plans(*storage_, layouts, SaveOptions());
  const auto plan = plans.MakeSave(digests_, nodes_);
  ASSERT_TRUE(plan.ok()) << plan.status();
  for (int rank = 0; rank < 50; ++rank) EXPECT_EQ(**plans.PartFor(plan->digest(), rank), plan->PartFor(rank));
  EXPECT_TRUE(HasReason(plans.PartFor(plan->digest(), 50).status(), Reason::kPlanUnknown));
  EXPECT_TRUE(HasReason(plans.PartFor(Digest("none"), 0).status(), Reason::kPlanUnknown));
  const auto reshard = plans.MakeReshard(digests_, digests_, nodes_);
  ASSERT_TRUE(reshard.ok()) << reshard.status();
  const auto hold = plans.HoldReshard(*reshard);
  for (int rank = 0; rank < 50; ++rank) {
    EXPECT_EQ(**plans.PartFor(reshard->load.digest(), rank), reshard->load.PartFor(rank));
  }
  EXPECT_TRUE(HasReason(plans.PartFor(reshard->load.digest(), 50).status(), Reason::kPlanUnknown));
}

}  // namespace
}  // namespace cairn

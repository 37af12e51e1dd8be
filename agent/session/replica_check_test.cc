#include "agent/session/replica_check.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "agent/session/session.h"
#include "agent/testing/layouts.h"
#include "common/status/reason.h"

namespace cairn {
namespace {

using testing::MakeLayout;
using testing::MakeWritePlan;
using testing::Object;
using testing::Whole;
using Items = std::vector<uint32_t>;

constexpr uint64_t kTrainer = 77;
constexpr uint32_t kTensors = 7;  // items 0 to 6; "own" is item 7, "shared" item 8

RankLayoutPtr Layout() {
  std::vector<StoredItem> shards;
  for (uint32_t i = 0; i < kTensors; ++i) shards.push_back(Whole("t" + std::to_string(i), DType::kFloat32, {100}));
  StoredItem own = Object("own", 4096);
  own.object_rank = 0;
  return MakeLayout(shards, {own, Object("shared", 8192)});
}

Items Must(const v1::BeginSaveResponse& begun) { return {begun.check_items().begin(), begun.check_items().end()}; }
Items May(const v1::BeginSaveResponse& begun) {
  return {begun.may_check_items().begin(), begun.may_check_items().end()};
}

// The saves of one rank that writes item 0 and its own object, so that 1 to 6 are replicas.
class ReplicaCheckTest : public ::testing::Test {
 protected:
  ReplicaCheckTest() : session_({.job = "demo", .rank = 0, .world_size = 4, .incarnation = 9}) {
    v1::RegisterAgentResponse registered;
    registered.set_coordinator_epoch(1);
    EXPECT_TRUE(session_.OnRegistered(registered).ok());
    session_.Attach(kTrainer);
    session_.AddLayout(layout_);
  }

  absl::StatusOr<v1::BeginSaveResponse> Call(int64_t step) {
    v1::BeginSaveRequest request;
    request.set_trainer_incarnation(kTrainer);
    request.set_step(step);
    request.mutable_layout()->set_digest(layout_->digest);
    return session_.Ask(request, now_);
  }

  void Order(int64_t step, v1::Phase::Value what, const std::string& plan) {
    session_.BuildRequest(std::nullopt);
    v1::SynchronizeAgentResponse response;
    response.set_coordinator_epoch(1);
    v1::SaveOrder& order = *response.add_saves();
    order.set_step(step);
    order.set_phase(what);
    order.set_attempt(1);
    order.set_plan_digest(plan);
    order.set_directory("demo/dir");
    order.set_check_replicas(check_all_);
    order.set_sample_replicas(sample_);
    response.set_check_replicas(check_all_);
    response.set_sample_replicas(sample_);
    ASSERT_TRUE(session_.OnOrders(response).ok());
    for (bool more = true; more;) {
      more = false;
      for (Action& action : session_.TakeActions()) {
        if (const auto* get = std::get_if<action::GetPlan>(&action)) {
          session_.OnPlan(get->digest, plans_.at(get->digest));
          more = true;
        } else if (const auto* slab = std::get_if<action::MakeSlab>(&action)) {
          session_.OnSlab(SlabDescription{1, slab->bytes});
          more = true;
        }
      }
    }
  }

  v1::BeginSaveResponse Begin(int64_t step, const std::string& plan = "p") {
    EXPECT_TRUE(Call(step).ok());
    Order(step, v1::Phase::STAGING, plan);
    const auto begun = Call(step);
    EXPECT_TRUE(begun.ok() && !begun->pending()) << begun.status();
    return *begun;
  }

  absl::Status Commit(const v1::BeginSaveResponse& begun, size_t checked, size_t sampled) {
    v1::CommitStagingRequest request;
    request.set_trainer_incarnation(kTrainer);
    request.set_save(begun.save());
    request.add_object_sizes(10);
    request.add_object_sizes(8192);
    for (size_t i = 0; i < checked; ++i) request.add_check_checksums(1000 + static_cast<uint32_t>(i));
    for (size_t i = 0; i < sampled; ++i) request.add_sampled_checksums(2000 + static_cast<uint32_t>(i));
    return session_.Ask(request, now_);
  }

  v1::SaveState State() { return session_.BuildRequest(std::nullopt).state().saves(0); }

  // The next save, of which the trainer samples so many.
  Items Sample(size_t count) {
    const v1::BeginSaveResponse begun = Begin(++step_);
    EXPECT_TRUE(Commit(begun, 1, count).ok());
    const v1::SaveState state = State();
    EXPECT_EQ(static_cast<size_t>(state.replica_checksums_size()), 1 + count);
    EXPECT_FALSE(state.all_replicas_checked());
    const Items items = May(begun);
    for (size_t i = 0; i < count; ++i) {
      const v1::ReplicaChecksum& checksum = state.replica_checksums(static_cast<int>(1 + i));
      EXPECT_EQ(checksum.item(), items[i]);
      EXPECT_EQ(checksum.crc32c(), 2000 + i);
    }
    Order(step_, v1::Phase::ABORTED, "p");
    return items;
  }

  const RankLayoutPtr layout_ = Layout();
  std::map<std::string, std::string> plans_ = {
      {"p", MakeWritePlan(*layout_, 0, {{0, 7}}, "p").SerializeAsString()},
      {"all", MakeWritePlan(*layout_, 0, {{0, 1, 2, 3, 4, 5, 6, 7, 8}}, "all").SerializeAsString()}};
  absl::Time now_ = absl::UnixEpoch();
  bool check_all_ = false;
  bool sample_ = true;
  int64_t step_ = 0;
  Session session_;
};

TEST_F(ReplicaCheckTest, SharedObjects_OnTheirWriter_AreCheckedToo) {
  sample_ = false;
  EXPECT_EQ(Must(Begin(1)), (Items{8}));
  EXPECT_TRUE(May(Begin(1)).empty());
  EXPECT_TRUE(HasReason(Commit(Begin(1), 0, 0), Reason::kBadRequest)) << "it is missing";
  EXPECT_TRUE(HasReason(Commit(Begin(1), 1, 1), Reason::kBadRequest)) << "a sample was not asked for";
  ASSERT_TRUE(Commit(Begin(1), 1, 0).ok());
  ASSERT_EQ(State().replica_checksums_size(), 1);
  EXPECT_EQ(State().replica_checksums(0).item(), 8u);
  EXPECT_EQ(State().replica_checksums(0).object_bytes(), 8192u);
  EXPECT_FALSE(State().all_replicas_checked());
}

TEST_F(ReplicaCheckTest, Rank_WritesAllThatItHolds_HasCheckedAll) {
  EXPECT_EQ(Must(Begin(1, "all")), (Items{8}));
  EXPECT_TRUE(May(Begin(1, "all")).empty());
  EXPECT_FALSE(State().all_replicas_checked()) << "nothing is staged yet";
  ASSERT_TRUE(Commit(Begin(1, "all"), 1, 0).ok());
  EXPECT_TRUE(State().all_replicas_checked());
}

TEST_F(ReplicaCheckTest, CheckAll_WhenOrdered_AsksForEveryReplicaAndForNoSample) {
  check_all_ = true;
  const v1::BeginSaveResponse begun = Begin(1);
  EXPECT_EQ(Must(begun), (Items{1, 2, 3, 4, 5, 6, 8}));
  EXPECT_TRUE(May(begun).empty());
  ASSERT_TRUE(Commit(begun, 7, 0).ok());
  EXPECT_EQ(State().replica_checksums_size(), 7);
  EXPECT_TRUE(State().all_replicas_checked());
}

TEST_F(ReplicaCheckTest, Sample_OverManySaves_GoesAroundAllReplicasAsFastAsTheyAreChecked) {
  EXPECT_EQ(Sample(2), (Items{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(Sample(0), (Items{3, 4, 5, 6, 1, 2})) << "behind those that were checked";
  EXPECT_EQ(Sample(3), (Items{3, 4, 5, 6, 1, 2})) << "none was";
  EXPECT_EQ(Sample(1), (Items{6, 1, 2, 3, 4, 5}));
  EXPECT_EQ(Sample(6), (Items{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(Sample(6), (Items{1, 2, 3, 4, 5, 6}));
}

TEST_F(ReplicaCheckTest, Commit_MoreThanWasOffered_IsRefusedAndDoesNotMoveTheRotation) {
  const v1::BeginSaveResponse begun = Begin(1);
  EXPECT_TRUE(HasReason(Commit(begun, 1, 7), Reason::kBadRequest));
  EXPECT_EQ(May(Begin(1)), (Items{1, 2, 3, 4, 5, 6}));
}

TEST_F(ReplicaCheckTest, Plan_ChangesAfterStaging_IsNotTakenForChecked) {
  // By "all" this rank had nothing to compare; by "p" six replicas.
  check_all_ = true;
  ASSERT_TRUE(Commit(Begin(1, "all"), 1, 0).ok());
  EXPECT_TRUE(State().all_replicas_checked());
  Order(1, v1::Phase::STAGING, "p");
  EXPECT_EQ(State().plan_digest(), "p");
  EXPECT_FALSE(State().all_replicas_checked());
  EXPECT_EQ(State().replica_checksums(0).item(), 8u) << "the shared object is compared by whatever plan";
}

TEST(ReplicaChecklistTest, Sample_OfManyReplicas_IsBoundedAndCoversAllInTurn) {
  std::vector<StoredItem> shards;
  for (uint32_t i = 0; i < 1000; ++i) shards.push_back(Whole("t" + std::to_string(10000 + i), DType::kUint8, {1}));
  const RankLayoutPtr layout = MakeLayout(shards, {});
  const auto image = MakeSaveImage(layout, MakeWritePlan(*layout, 0, {{500}}, "p"));
  ASSERT_TRUE(image.ok()) << image.status();
  std::set<uint32_t> seen;
  uint32_t first = 0;
  for (int save = 0; save < 4; ++save) {
    const ReplicaChecklist checklist = MakeReplicaChecklist(**image, false, true, first);
    EXPECT_EQ(checklist.may.size(), kMostSampled);
    seen.insert(checklist.may.begin(), checklist.may.end());
    first = checklist.may.back() + 1;
  }
  EXPECT_EQ(seen.size(), 999u);
}

}  // namespace
}  // namespace cairn

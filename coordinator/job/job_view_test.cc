// These tests are about what people see of a job, small and large.
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "coordinator/testing/job_fixture.h"

namespace cairn {
namespace {

// One message takes no more (common/rpc/endpoint.h).
constexpr size_t kMaxMessage = size_t{4} << 20;

class JobViewTest : public JobFixture {
 protected:
  // All ranks have long names and a trainer at step 41000, and have begun a save but those in `waiting`.
  void Start(int ranks, const std::set<int>& waiting, const std::set<int>& without_agent = {}) {
    DecisionOptions options = Options();
    options.lease_ttl = absl::Hours(3);
    StartJob(options, 0);
    ranks_ = ranks;
    for (int rank = 0; rank < ranks; ++rank) {
      if (without_agent.contains(rank)) continue;
      v1::RegisterAgentRequest request;
      *request.mutable_agent() = Identity(rank);
      request.set_world_size(static_cast<uint32_t>(ranks));
      request.set_node(absl::StrCat("gpu-h100-a3-megagpu-8g-nodepool-", rank / 8, ".us-central1-c"));
      request.set_transfer_address(absl::StrCat("10.12.", rank / 256, ".", rank % 256, ":37421"));
      ASSERT_TRUE(job().Register(request, At()).ok());
    }
    Recover();
    for (int rank = 0; rank < ranks; ++rank) {
      if (without_agent.contains(rank)) continue;
      v1::AgentState state = StateWith(Trainer(rank));
      state.mutable_trainer()->set_current_step(41000);
      if (!waiting.contains(rank)) {
        *state.add_saves() = Begun(rank, 41000);
        state.mutable_saves(0)->set_trainer_incarnation(Trainer(rank));
      }
      Synchronize(rank, state);
    }
  }
  static std::vector<int> RanksOf(const google::protobuf::RepeatedPtrField<v1::RankProgress>& ranks) {
    std::vector<int> numbers;
    for (const v1::RankProgress& rank : ranks) numbers.push_back(static_cast<int>(rank.rank()));
    return numbers;
  }
  static uint32_t CountOf(const v1::Checkpoint& save, v1::Phase::Value phase) {
    for (const v1::PhaseCount& count : save.phase_counts()) {
      if (count.phase() == phase) return count.ranks();
    }
    return 0;
  }
};

TEST_F(JobViewTest, View_SmallJob_ShowsEveryRank) {
  Start(64, {5});
  const v1::Job view = job().View(At());
  EXPECT_EQ(view.ranks_size(), 64);
  EXPECT_EQ(view.checkpoint().ranks_size(), 64);
  EXPECT_FALSE(view.ranks_left_out());
  EXPECT_EQ(view.agents(), 64u);
  EXPECT_EQ(view.trainers(), 64u);
  EXPECT_EQ(CountOf(view.checkpoint(), v1::Phase::WAITING), 1u);
  EXPECT_EQ(CountOf(view.checkpoint(), v1::Phase::PLANNING), 63u);
}

// Every rank is late, each with a note: the worst that a view can have to say.
TEST_F(JobViewTest, View_LargeJobThatIsLate_FitsIntoAMessageAndCountsAll) {
  constexpr int kRanks = 16384;
  Start(kRanks, {}, {7});
  now_ += absl::Hours(1) + absl::Seconds(1);
  const v1::Job view = job().View(At());
  EXPECT_LT(view.ByteSizeLong(), kMaxMessage / 16);
  EXPECT_TRUE(view.ranks_left_out());
  EXPECT_EQ(view.agents(), static_cast<uint32_t>(kRanks - 1));
  EXPECT_EQ(view.lowest_step(), 41000);
  EXPECT_EQ(CountOf(view.checkpoint(), v1::Phase::PLANNING), static_cast<uint32_t>(kRanks - 1));
  EXPECT_EQ(CountOf(view.checkpoint(), v1::Phase::WAITING), 1u);
  ASSERT_GE(view.checkpoint().ranks_size(), 1);
  EXPECT_EQ(RanksOf(view.checkpoint().ranks()), std::vector<int>{7}) << "all others wait for it";
  EXPECT_TRUE(view.checkpoint().ranks(0).late());
  const v1::Checkpoint checkpoint = **job().Get({41000, ""}, 0, At());
  EXPECT_LT(checkpoint.ByteSizeLong(), kMaxMessage / 16);
  EXPECT_EQ(RanksOf(checkpoint.ranks()), std::vector<int>{7});
}

TEST_F(JobViewTest, View_ManyRanksAreLate_ShowsTheFirstOnes) {
  std::set<int> waiting;
  for (int rank = 0; rank < 4096; rank += 2) waiting.insert(rank);
  Start(4096, waiting);
  now_ += absl::Hours(1) + absl::Seconds(1);
  const v1::Job view = job().View(At());
  EXPECT_EQ(view.checkpoint().ranks_size(), static_cast<int>(ShownRanks::kNoteworthy));
  EXPECT_EQ(view.ranks_size(), view.checkpoint().ranks_size()) << "the same ranks everywhere";
  for (const int rank : RanksOf(view.checkpoint().ranks())) EXPECT_TRUE(waiting.contains(rank)) << rank;
}

TEST_F(JobViewTest, View_ByPages_HoldsEveryRankOnce) {
  constexpr int kRanks = 5000;
  Start(kRanks, {}, {7});
  now_ += absl::Hours(1) + absl::Seconds(1);
  std::vector<int> shown;
  size_t agents = 0;
  v1::RankPage page;
  do {
    const v1::Job view = job().View(At(), page);
    EXPECT_LT(view.ByteSizeLong(), kMaxMessage / 4);
    EXPECT_TRUE(view.ranks_left_out());
    for (const int rank : RanksOf(view.checkpoint().ranks())) shown.push_back(rank);
    agents += static_cast<size_t>(view.ranks_size());
    ASSERT_TRUE(view.next_rank() == 0 || view.next_rank() > page.first_rank());
    page.set_first_rank(view.next_rank());
  } while (page.first_rank() != 0);
  ASSERT_EQ(shown.size(), size_t{kRanks});
  for (int rank = 0; rank < kRanks; ++rank) ASSERT_EQ(shown[static_cast<size_t>(rank)], rank);
  EXPECT_EQ(agents, size_t{kRanks - 1});
}

TEST_F(JobViewTest, View_PageBeyondAllBounds_IsEmpty) {
  Start(8, {});
  v1::RankPage page;
  page.set_first_rank(0xffffffff);
  page.set_max_ranks(0xffffffff);
  const v1::Job view = job().View(At(), page);
  EXPECT_EQ(view.ranks_size(), 0);
  EXPECT_EQ(view.next_rank(), 0u);
}

TEST_F(JobViewTest, SharedView_NothingHasHappened_IsMadeOnce) {
  Start(8, {});
  const auto first = job().SharedView(At(), 0, 0);
  EXPECT_EQ(job().SharedView(At(), 0, 0), first);
  EXPECT_NE(job().SharedView(At(), 1, 0), first) << "storage has stalled";
  const auto second = job().SharedView(At(), 1, 0);
  Report(0, Trainer(0));
  EXPECT_NE(job().SharedView(At(), 1, 0), second) << "a rank has reported";
  const auto third = job().SharedView(At(), 1, 0);
  now_ += absl::Seconds(1);
  EXPECT_NE(job().SharedView(At(), 1, 0), third) << "it says how long ago agents were heard";
}

// Ranks of a large job report all the time: not each report is worth a look at all of them.
TEST_F(JobViewTest, SharedView_LargeJob_IsSharedForASecondUnlessItIsKnown) {
  Start(16384, {});
  const auto first = job().SharedView(At(), 0, 0);
  v1::AgentState state = StateWith(Trainer(3));
  state.mutable_trainer()->set_current_step(41001);
  Synchronize(3, state);
  now_ += absl::Milliseconds(500);
  EXPECT_EQ(job().SharedView(At(), 0, 0), first);
  const auto news = job().SharedView(At(), 0, first->revision());
  EXPECT_NE(news, first) << "who has seen that one waits for another";
  EXPECT_EQ(news->highest_step(), 41001);
  now_ += absl::Seconds(1);
  EXPECT_NE(job().SharedView(At(), 0, 0), news);
}

}  // namespace
}  // namespace cairn

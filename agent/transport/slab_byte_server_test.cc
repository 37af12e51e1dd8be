#include "agent/transport/slab_byte_server.h"

#include <gtest/gtest.h>

#include "agent/reader/buffer_pool.h"
#include "agent/testing/layouts.h"
#include "common/status/reason.h"

namespace cairn {
namespace {

using testing::MakeLayout;
using testing::MakeMovingPlan;
using testing::Whole;

struct Answers {
  std::vector<absl::StatusOr<RoundBuffer>> all;
  ByteServer::Done Take() {
    return [this](absl::StatusOr<RoundBuffer> buffer) { all.push_back(std::move(buffer)); };
  }
};

TEST(SlabByteServerTest, Await_TrainerHasNotStaged_WaitsUntilItHas) {
  SlabByteServer lender(RoundBuffer{0, 8192, nullptr});
  Answers answers;
  const uint64_t first = lender.Await(1, 0, 0, answers.Take());
  const uint64_t second = lender.Await(2, 0, 0, answers.Take());
  EXPECT_TRUE(first != 0 && second != 0 && answers.all.empty());
  EXPECT_FALSE(lender.progress().all_read);
  lender.Forget(second);
  lender.MarkStaged(9);
  ASSERT_EQ(answers.all.size(), 1u);
  EXPECT_EQ(answers.all[0]->descriptor_id, 9u);
  EXPECT_TRUE(lender.progress().all_read);
  EXPECT_EQ(lender.Await(2, 0, 0, answers.Take()), 0u);
  EXPECT_EQ(lender.Await(2, 1, 0, answers.Take()), 0u);
  EXPECT_TRUE(HasReason(answers.all[2].status(), Reason::kBadRequest));
}

TEST(SlabByteServerTest, Await_ImageOfASave_TellsEachConsumerItsShardsWhereTheyWereStaged) {
  const auto layout = MakeLayout({Whole("a", DType::kUint8, {10}), Whole("b", DType::kUint8, {20}),
                                  Whole("c", DType::kUint8, {30}), Whole("d", DType::kUint8, {40})},
                                 {});
  // Staged when all was written here; now b and d are rank 5's, c rank 6's.
  const auto staged = MakeSaveImage(layout, MakeMovingPlan(*layout, 0, {{3, 2, 1, 0}}, "p1", {}, {}));
  const auto target = MakeSaveImage(layout, MakeMovingPlan(*layout, 0, {{0}}, "p2", {}, {{1, 5}, {2, 6}, {3, 5}}));
  ASSERT_TRUE(staged.ok() && target.ok()) << target.status();
  SlabByteServer lender(RoundBuffer{0, (*staged)->slab_bytes, nullptr}, **staged, **target);
  lender.MarkStaged(9);
  Answers answers;
  for (uint32_t consumer : {5u, 6u, 7u}) lender.Await(consumer, 0, 0, answers.Take());
  ASSERT_EQ(answers.all[0]->shards.size(), 2u);
  EXPECT_EQ(answers.all[0]->shards[0].shard, 1u);
  EXPECT_EQ(answers.all[0]->shards[0].offset, (*staged)->slab_offset[1]);
  EXPECT_EQ(answers.all[0]->shards[0].bytes, 20u);
  EXPECT_EQ(answers.all[0]->shards[1].shard, 3u);
  EXPECT_EQ(answers.all[1]->shards[0].bytes, 30u);
  EXPECT_TRUE(HasReason(answers.all[2].status(), Reason::kBadRequest));
}

TEST(SlabByteServerTest, Stop_ConsumersWait_TellsThemWhy) {
  SlabByteServer lender(RoundBuffer{0, 8192, nullptr});
  Answers answers;
  lender.Await(1, 0, 0, answers.Take());
  lender.Stop(MakeError(Reason::kInterrupted, "over"));
  ASSERT_EQ(answers.all.size(), 1u);
  EXPECT_TRUE(HasReason(answers.all[0].status(), Reason::kInterrupted));
}

TEST(SlabByteServerTest, Stop_OthersKeepTheLender_ItsMemoryIsFreeAllTheSame) {
  BufferPool pool(0, 1);
  auto memory = pool.Make("source", 8192).value();
  const auto lender = std::make_shared<SlabByteServer>(RoundBuffer{0, memory->bytes(), memory});
  lender->MarkStaged(9);
  memory.reset();
  EXPECT_EQ(pool.held(), 8192u);
  lender->Stop(MakeError(Reason::kInterrupted, "over"));
  EXPECT_EQ(pool.held(), 0u) << "the next reshard needs the room";
  Answers answers;
  EXPECT_EQ(lender->Await(1, 0, 0, answers.Take()), 0u);
  EXPECT_TRUE(HasReason(answers.all.at(0).status(), Reason::kInterrupted));
}

TEST(SaveImageTest, MakeSaveImage_PlanMovesWhatCannotBe_IsRefused) {
  const auto layout = MakeLayout({Whole("a", DType::kUint8, {10}), Whole("b", DType::kUint8, {20})}, {});
  const testing::MovedInShard in = {3, 0, Whole("m", DType::kUint8, {5})};
  EXPECT_TRUE(MakeSaveImage(layout, MakeMovingPlan(*layout, 0, {{0, 2}}, "p", {in}, {{1, 3}})).ok());
  // In these plans a shard is not written, written twice, moved out and written, moved to itself, or does not exist.
  EXPECT_FALSE(MakeSaveImage(layout, MakeMovingPlan(*layout, 0, {{0}}, "p", {in}, {})).ok());
  EXPECT_FALSE(MakeSaveImage(layout, MakeMovingPlan(*layout, 0, {{0, 2}, {2}}, "p", {in}, {})).ok());
  EXPECT_FALSE(MakeSaveImage(layout, MakeMovingPlan(*layout, 0, {{0}}, "p", {}, {{0, 3}})).ok());
  EXPECT_FALSE(MakeSaveImage(layout, MakeMovingPlan(*layout, 0, {{0}}, "p", {}, {{1, 0}})).ok());
  EXPECT_FALSE(MakeSaveImage(layout, MakeMovingPlan(*layout, 0, {{0}}, "p", {}, {{2, 3}})).ok());
  auto plan = MakeMovingPlan(*layout, 0, {{0, 2}}, "p", {in}, {});
  plan.mutable_incoming_shards(0)->set_offset(0, 1);  // beyond its tensor
  EXPECT_FALSE(MakeSaveImage(layout, plan).ok());
  plan = MakeMovingPlan(*layout, 0, {{0, 2}}, "p", {in}, {});
  plan.mutable_incoming_shards(0)->set_dtype(static_cast<v1::DType>(99));
  EXPECT_FALSE(MakeSaveImage(layout, plan).ok());
  plan = MakeMovingPlan(*layout, 0, {{0, 2}}, "p", {in}, {});
  plan.mutable_incoming_shards(0)->set_from_rank(0);
  EXPECT_FALSE(MakeSaveImage(layout, plan).ok());
}

}  // namespace
}  // namespace cairn

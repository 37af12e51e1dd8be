#include "common/rpc/plan_part.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "common/status/reason.h"

namespace cairn {
namespace {

// Two shards, an object of the rank's own, and three that all ranks get: two whole ones and one in two pieces.
v1::ReadPlan Packed() {
  v1::ReadPlan plan;
  plan.set_rank(5);
  v1::Copy& tensor = *plan.add_copies();
  tensor.set_source_rank(7);
  tensor.set_round(1);
  tensor.set_target(1);
  v1::ReadObject& own = *plan.add_objects();
  own.set_name("own");
  own.set_bytes(10);
  plan.set_first_shared_target(3);
  v1::SharedObjects& shared = *plan.mutable_shared_objects();
  v1::SharedObjectGroup& meta = *shared.add_groups();
  meta.set_name("meta");
  meta.add_bytes(1000);
  v1::SharedObjectGroup& rng = *shared.add_groups();
  rng.set_name("rng");
  rng.set_per_rank(true);
  for (uint32_t rank : {0, 2}) {
    rng.add_ranks(rank);
    rng.add_bytes(20 + rank);
  }
  v1::SharedRun& run = *shared.add_runs();
  run.set_source_rank(9);
  run.set_first_object(1);
  run.add_source_offsets(4096);
  run.add_source_offsets(8192);
  for (uint32_t round : {0, 1}) {
    v1::Copy& piece = *shared.add_pieces();
    piece.set_source_rank(3);
    piece.set_round(round);
    piece.set_target_offset(500 * round);
    piece.set_element_bytes(500);
  }
  return plan;
}

TEST(PlanPartTest, ParseReadPlan_SharedObjects_StandWhereTheOthersAre) {
  const auto plan = ParseReadPlan(Packed().SerializeAsString());
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_FALSE(plan->has_shared_objects());
  std::vector<std::pair<std::string, uint64_t>> objects;
  for (const v1::ReadObject& object : plan->objects()) objects.emplace_back(object.name(), object.bytes());
  EXPECT_EQ(objects,
            (std::vector<std::pair<std::string, uint64_t>>{{"own", 10}, {"meta", 1000}, {"rng", 20}, {"rng", 22}}));
  EXPECT_TRUE(plan->objects(3).per_rank());
  EXPECT_EQ(plan->objects(3).rank(), 2u);
  struct Line {
    uint32_t round, rank, target;
    uint64_t from, to, bytes;
    bool operator==(const Line&) const = default;
  };
  std::vector<Line> copies;
  for (const v1::Copy& copy : plan->copies()) {
    copies.push_back({copy.round(), copy.source_rank(), copy.target(), copy.source_offset(), copy.target_offset(),
                      copy.element_bytes()});
  }
  EXPECT_EQ(copies, (std::vector<Line>{{0, 3, 3, 0, 0, 500},
                                       {0, 9, 4, 4096, 0, 20},
                                       {0, 9, 5, 8192, 0, 22},
                                       {1, 3, 3, 0, 500, 500},
                                       {1, 7, 1, 0, 0, 0}}));
}

TEST(PlanPartTest, ParseReadPlan_ContradictingSharedObjects_IsAnError) {
  const auto spoilt = [](void (*spoil)(v1::SharedObjects&)) {
    v1::ReadPlan plan = Packed();
    spoil(*plan.mutable_shared_objects());
    return ParseReadPlan(plan.SerializeAsString()).status();
  };
  EXPECT_TRUE(HasReason(spoilt([](auto& shared) { shared.mutable_runs(0)->set_first_object(2); }), Reason::kInternal));
  EXPECT_TRUE(
      HasReason(spoilt([](auto& shared) { shared.mutable_runs(0)->set_first_object(~0u); }), Reason::kInternal));
  EXPECT_TRUE(HasReason(spoilt([](auto& shared) { shared.mutable_pieces(0)->set_target(3); }), Reason::kInternal));
  EXPECT_TRUE(HasReason(spoilt([](auto& shared) { shared.mutable_groups(1)->add_bytes(1); }), Reason::kInternal));
  EXPECT_TRUE(HasReason(spoilt([](auto& shared) { shared.mutable_groups(0)->add_ranks(1); }), Reason::kInternal));
  EXPECT_TRUE(HasReason(ParseReadPlan("\xff").status(), Reason::kInternal));
}

TEST(PlanPartTest, PartOfPlan_SameBody_HasAnotherDigestInFront) {
  const auto part = [](char fill) {
    v1::ReadPlan plan = Packed();
    plan.set_plan_digest(std::string(32, fill));
    return plan.SerializeAsString();
  };
  EXPECT_EQ(PartOfPlan(std::string(32, 'b'), part('a')), part('b'));
  EXPECT_EQ(BodyDigestOf(part('a')), BodyDigestOf(part('b')));
  EXPECT_EQ(BodyDigestOf(""), "");
}

}  // namespace
}  // namespace cairn

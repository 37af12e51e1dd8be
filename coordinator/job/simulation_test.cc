// The decisions about saves under a seeded scheduler. A failing seed prints how to run it alone:
// CAIRN_SIMULATION_SEED=N. coordinator/job/testing has the world, the faults, and what must hold.
#include "coordinator/testing/simulation.h"

#include <gtest/gtest.h>

#include <string>

#include "coordinator/job/testing/simulated_world.h"

namespace cairn {
namespace {

constexpr absl::Duration kStorm = absl::Seconds(120);
constexpr absl::Duration kCalm = absl::Seconds(80);  // four phase timeouts

TEST(CoreSimulationTest, Invariants_EverySeed_Hold) {
  const Seeds seeds = SeedsToRun(12);
  SimulatedWorld::Tally all;
  for (uint64_t seed = seeds.first; seed < seeds.first + seeds.count; ++seed) {
    SimulatedWorld world(seed, 2 + static_cast<int>(seed % 4), PlantedFault::kNothing);
    const std::string violation = world.Run(kStorm, kCalm);
    ASSERT_EQ(violation, "") << "replay: CAIRN_SIMULATION_SEED=" << seed << " CAIRN_SIMULATION_LOG=1";
    const SimulatedWorld::Tally tally = world.tally();
    all.commits += tally.commits;
    all.aborts += tally.aborts;
    all.agreements += tally.agreements;
    all.doubts += tally.doubts;
    all.stalls += tally.stalls;
    all.replaced += tally.replaced;
    all.deletions += tally.deletions;
  }
  // The storm must neither have been so bad that nothing works nor so mild that nothing fails.
  if (seeds.count > 10) {
    EXPECT_GT(all.commits, 2 * static_cast<int>(seeds.count));
    EXPECT_GT(all.aborts, static_cast<int>(seeds.count));
    EXPECT_GT(all.agreements, static_cast<int>(seeds.count));
    EXPECT_GT(all.doubts, 0);
    EXPECT_GT(all.stalls, 0);
    EXPECT_GT(all.replaced, static_cast<int>(seeds.count));
    EXPECT_GT(all.deletions, all.replaced);
  }
}

class PlantedTest : public testing::TestWithParam<PlantedFault> {};

TEST_P(PlantedTest, Fault_Planted_IsCaughtWithinAFewSeeds) {
  int caught = 0;
  for (uint64_t seed = 1; seed <= 40 && caught == 0; ++seed) {
    SimulatedWorld world(seed, 3, GetParam());
    caught += world.Run(kStorm, kCalm).empty() ? 0 : 1;
  }
  EXPECT_GT(caught, 0);
}

INSTANTIATE_TEST_SUITE_P(All, PlantedTest,
                         testing::Values(PlantedFault::kOutcomeOverwritten, PlantedFault::kWrittenTooEarly,
                                         PlantedFault::kDoubtConcealed, PlantedFault::kTokenWithheld,
                                         PlantedFault::kTokenForAll, PlantedFault::kOvertakenTaken,
                                         PlantedFault::kFilesStay));

}  // namespace
}  // namespace cairn

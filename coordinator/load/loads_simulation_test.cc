// Runs loads, also of agents that can use NCCL, and reshards in a storm of faults. Every call ends, and as soon as all
// ranks call without further faults, they meet. A failing seed prints how to run it alone: CAIRN_SIMULATION_SEED=N.
#include <gtest/gtest.h>

#include <string>

#include "coordinator/load/testing/load_world.h"
#include "coordinator/testing/simulation.h"

namespace cairn {
namespace {

TEST(LoadsSimulationTest, Invariants_EverySeed_EveryCallEndsAndValidCallsMeet) {
  const Seeds seeds = SeedsToRun(40);
  int loads = 0;
  int failures = 0;
  int given_up = 0;
  for (uint64_t seed = seeds.first; seed < seeds.first + seeds.count; ++seed) {
    LoadWorld world(seed, 1 + static_cast<int>(seed % 4), LoadWorld::Calls::kLoads);
    const std::string violation = world.Run();
    ASSERT_EQ(violation, "") << "replay: CAIRN_SIMULATION_SEED=" << seed << " CAIRN_SIMULATION_LOG=1";
    loads += world.loads();
    failures += world.failures();
    given_up += world.given_up();
  }
  if (seeds.count > 10) {
    EXPECT_GT(loads, 10 * static_cast<int>(seeds.count));
    EXPECT_GT(failures, 10 * static_cast<int>(seeds.count));
    EXPECT_GT(given_up, 5 * static_cast<int>(seeds.count));
  }
}

// Runs worlds in which bytes may go over NCCL.
void RunExchanges(LoadWorld::Calls calls) {
  const Seeds seeds = SeedsToRun(40);
  int loads = 0;
  int failures = 0;
  int exchanges = 0;
  for (uint64_t seed = seeds.first; seed < seeds.first + seeds.count; ++seed) {
    LoadWorld world(seed, 2 + static_cast<int>(seed % 3), calls);
    const std::string violation = world.Run();
    ASSERT_EQ(violation, "") << "replay: CAIRN_SIMULATION_SEED=" << seed << " CAIRN_SIMULATION_LOG=1";
    loads += world.loads();
    failures += world.failures();
    exchanges += world.exchanges();
  }
  if (seeds.count > 10) {
    EXPECT_GT(loads, 10 * static_cast<int>(seeds.count));
    EXPECT_GT(failures, 10 * static_cast<int>(seeds.count));
    EXPECT_GT(exchanges, 5 * static_cast<int>(seeds.count));
  }
}

TEST(LoadsSimulationTest, Invariants_ReshardsOverNccl_EveryCallEndsAndRanksGoOneWay) {
  RunExchanges(LoadWorld::Calls::kReshards);
}

TEST(LoadsSimulationTest, Invariants_LoadsOverNccl_EveryCallEndsAndRanksGoOneWay) {
  RunExchanges(LoadWorld::Calls::kLoadsBetweenMachines);
}

}  // namespace
}  // namespace cairn

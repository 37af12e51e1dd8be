#include "corpus/bpe/step_team.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <thread>
#include <vector>

#include "common/resources/testing/address_space.h"

namespace cairn::corpus {
namespace {

TEST(StepTeam, Run_EveryPart_IsDoneOncePerStepAndSeenAfterwards) {
  for (const uint32_t parts : {1, 2, 3, 8}) {
    StepTeam team(parts);
    std::vector<uint64_t> done(parts);  // plain memory, so the team must order the accesses
    for (uint64_t step = 1; step <= 3000; ++step) {
      const uint64_t add = step;
      team.Run([&](uint32_t part) { done[part] += add; });
      for (const uint64_t sum : done) ASSERT_EQ(sum, step * (step + 1) / 2);
    }
  }
}

TEST(StepTeam, Run_HelpersThatSleep_WakeUpOrAreNotNeeded) {
  StepTeam team(3);
  std::vector<int> done(3);
  for (int step = 1; step <= 5; ++step) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));  // longer than a helper looks for work
    team.Run([&](uint32_t part) { ++done[part]; });
    ASSERT_EQ(done, std::vector<int>(3, step));
  }
}

TEST(StepTeam, Run_SystemRefusesThreads_OthersDoTheParts) {
  if (!LimitedAddressSpace::Works()) GTEST_SKIP() << "the address space cannot be limited here";
  const LimitedAddressSpace limited(uint64_t{64} << 20);  // for the stacks of a few threads
  StepTeam team(1024);
  std::vector<int> done(1024);
  for (int step = 1; step <= 5; ++step) {
    team.Run([&](uint32_t part) { ++done[part]; });
    ASSERT_EQ(done, std::vector<int>(1024, step));
  }
}

TEST(StepTeam, Destructor_WithoutAnyStep_Ends) { StepTeam team(4); }

}  // namespace
}  // namespace cairn::corpus

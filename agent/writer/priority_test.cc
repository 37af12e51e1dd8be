#include "agent/writer/priority.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <thread>

namespace cairn {
namespace {

TEST(PriorityTest, GiveWay_OfOneThread_LeavesTheOthersAsTheyAre) {
  const int before = getpriority(PRIO_PROCESS, 0);
  int inside = 0;
  std::thread thread([&] {
    GiveWay();
    inside = getpriority(PRIO_PROCESS, 0);
    GiveWay();
    EXPECT_EQ(getpriority(PRIO_PROCESS, 0), inside);
  });
  thread.join();
  EXPECT_GE(inside, 10);
  EXPECT_EQ(getpriority(PRIO_PROCESS, 0), before);
}

}  // namespace
}  // namespace cairn

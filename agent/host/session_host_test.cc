#include "agent/host/session_host.h"

#include <gtest/gtest.h>

namespace cairn {
namespace {

class SessionHostTest : public ::testing::Test {
 protected:
  std::shared_ptr<SessionHost::Waiter> MakeWaiter() {
    auto waiter = std::make_shared<SessionHost::Waiter>();
    waiter->poll = [this](Session&, absl::Time) { return ++asked_ > 0 && answer_; };
    waiter->finish = [this] { ++finished_; };
    waiter->over = [] { return false; };
    return waiter;
  }

  int asked_ = 0;
  int finished_ = 0;
  bool answer_ = false;
  SessionHost host_{{.job = "demo"}, Clock::Real(), [](const Action&) {}};
};

TEST_F(SessionHostTest, Waiter_UntilItHasItsAnswer_IsAskedAfterEachEvent) {
  const auto waiter = MakeWaiter();
  host_.Wait(waiter);
  host_.Tick();
  EXPECT_EQ(asked_, 2);
  answer_ = true;
  host_.Tick();
  host_.Tick();
  EXPECT_EQ(asked_, 3);
  EXPECT_EQ(finished_, 1);
}

TEST_F(SessionHostTest, Forget_WaiterHasItsAnswer_IsRefused) {
  const auto waiter = MakeWaiter();
  bool forgotten = true;
  // Plays a timer whose time is over while the answer is on its way.
  waiter->finish = [&] { forgotten = host_.Forget(waiter); };
  host_.Wait(waiter);
  answer_ = true;
  host_.Tick();
  EXPECT_FALSE(forgotten);
}

TEST_F(SessionHostTest, Forget_WaiterComesLater_IsNeverAsked) {
  const auto waiter = MakeWaiter();
  EXPECT_TRUE(host_.Forget(waiter));
  answer_ = true;
  host_.Wait(waiter);
  host_.Tick();
  EXPECT_EQ(asked_, 0);
}

}  // namespace
}  // namespace cairn

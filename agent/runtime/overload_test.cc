// A link whose coordinator has more to do than it can: what it refuses waits, and heartbeats go on.
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <variant>

#include "agent/host/session_host.h"
#include "agent/runtime/coordinator_link.h"
#include "agent/testing/fake_coordinator.h"
#include "agent/testing/layouts.h"
#include "common/base/clock.h"
#include "common/rpc/token_source.h"
#include "common/status/reason.h"
#include "common/status/retry_delay.h"

namespace cairn {
namespace {

class OverloadTest : public ::testing::Test {
 protected:
  OverloadTest() {
    CoordinatorLinkOptions options;
    options.address = coordinator_.address();
    auto tokens = TokenSource::Open({.insecure = true});
    EXPECT_TRUE(tokens.ok()) << tokens.status();
    options.tokens = *std::move(tokens);
    options.registration.set_world_size(8);
    options.read_root_proof = [] { return std::string(); };
    options.on_registered = [](const std::string&) {};
    options.current_step = [] { return std::nullopt; };
    options.on_fatal = [](const absl::Status& error) { ADD_FAILURE() << error; };
    link_ = std::make_unique<CoordinatorLink>(host_, std::move(options));
    host_.Do([&](Session& session, absl::Time) { session.AddLayout(layout_); });
  }
  ~OverloadTest() override { Stop(); }
  void Stop() {
    link_->Stop(false);
    host_.Stop();
  }

  static absl::Status Overloaded(absl::Duration delay) {
    return WithRetryDelay(MakeError(Reason::kOverloaded, "too much to do"), delay);
  }
  void WantLayout() {
    v1::SynchronizeAgentResponse orders;
    orders.add_wanted_layouts(layout_->digest);
    coordinator_.Order(0, orders);
  }
  void AwaitLayout() {
    const absl::Time deadline = Clock::Real().SteadyNow() + absl::Seconds(10);
    while (coordinator_.layout(layout_->digest) != layout_->bytes) {
      ASSERT_LT(Clock::Real().SteadyNow(), deadline);
      std::this_thread::yield();
    }
  }

  const RankLayoutPtr layout_ = testing::MakeLayout({testing::Whole("a", DType::kFloat32, {100})}, {});
  testing::FakeCoordinator coordinator_;
  std::unique_ptr<CoordinatorLink> link_;
  std::atomic<int> uploads_ = 0;
  SessionHost host_{
      {.job = "demo", .rank = 0, .world_size = 8, .incarnation = 9}, Clock::Real(), [this](Action action) {
        const auto* put = std::get_if<action::PutLayout>(&action);
        if (put == nullptr) return;
        ++uploads_;
        link_->PutLayout(put->layout);
      }};
};

TEST_F(OverloadTest, RefusedUpload_AfterTheToldDelay_IsSentAgain) {
  const absl::Time begin = Clock::Real().SteadyNow();
  coordinator_.RefuseTransfers(2, Overloaded(absl::Milliseconds(100)));
  link_->Start();
  WantLayout();
  AwaitLayout();
  coordinator_.AwaitRefusals(2);
  EXPECT_GE(Clock::Real().SteadyNow() - begin, absl::Milliseconds(160));
}

TEST_F(OverloadTest, Heartbeats_WhileAnUploadWaits_GoOn) {
  coordinator_.RefuseTransfers(1, Overloaded(absl::Hours(1)));
  link_->Start();
  WantLayout();
  coordinator_.AwaitRefusals(1);
  for (const uint64_t trainer : {71, 72, 73}) {
    host_.Do([&](Session& session, absl::Time) { session.Attach(trainer); });
    coordinator_.Await(0, [&](const v1::AgentState& state) { return state.trainer().incarnation() == trainer; });
  }
  EXPECT_EQ(coordinator_.layout(layout_->digest), "");
  const absl::Time begin = Clock::Real().SteadyNow();
  Stop();
  EXPECT_LT(Clock::Real().SteadyNow() - begin, absl::Seconds(30)) << "an end does not wait for the delay";
}

TEST_F(OverloadTest, Upload_RefusedTenTimes_IsGivenUpUntilTheNextOrders) {
  coordinator_.RefuseTransfers(1'000'000, Overloaded(absl::ZeroDuration()));
  link_->Start();
  WantLayout();
  coordinator_.AwaitRefusals(11);
  EXPECT_GE(uploads_, 2) << "the eleventh belongs to an upload that later orders brought";
  coordinator_.RefuseTransfers(0, absl::OkStatus());
  AwaitLayout();
}

TEST_F(OverloadTest, Registration_RefusedByOverload_IsMadeAgainAndIsNotFatal) {
  coordinator_.Refuse(Overloaded(absl::Milliseconds(1)));
  link_->Start();
  coordinator_.AwaitRegistrationRefusals(3);
  coordinator_.Refuse(absl::OkStatus());
  coordinator_.Await(0, [](const v1::AgentState&) { return true; });
  EXPECT_EQ(coordinator_.registrations(), 1);
}

}  // namespace
}  // namespace cairn

// Steps of two workers with the stand-ins for CUDA's driver and NCCL, through the pipe of the first one.
#include "agent/transport/nccl/step_pipe.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <future>
#include <string>
#include <vector>

#include "agent/transport/testing/exchange_fixture.h"
#include "common/status/reason.h"

namespace cairn {
namespace {

constexpr absl::Duration kLimit = absl::Seconds(30);

class StepPipeTest : public testing::ExchangeFixture {
 protected:
  StepPipeTest() {
    for (auto& rank : ranks_) {
      worker::Map map;
      map.set_memory(1);
      map.set_bytes(rank->source_memory().bytes());
      map.set_writable(true);
      EXPECT_TRUE(rank->worker().Map(map, rank->source_memory().fd(), kLimit).ok());
    }
    MakePipe(kLimit);
  }
  void MakePipe(absl::Duration stall_timeout) {
    pipe_ = std::make_unique<StepPipe>(
        ranks_[0]->shared_group(), stall_timeout, [](const absl::Status& error, const ExchangeStep& step) {
          return MakeError(Reason::kTransportFailed,
                           "window " + std::to_string(step.window) + ": " + std::string(error.message()));
        });
    EXPECT_TRUE(pipe_->Start().ok());
  }
  // Rank 0 receives from rank 1.
  static worker::Step Part(bool send) {
    worker::Step step;
    worker::Transfer& moved = *step.add_transfers();
    moved.set_peer(send ? 0 : 1);
    moved.set_send(send);
    moved.set_memory(1);
    moved.set_bytes(100);
    return step;
  }
  absl::Status Post(size_t number, size_t holders) {
    return pipe_->Post(steps_[number], Part(false), number % StepPipe::kPlaces, holders,
                       [this, number] { done_.push_back(number); });
  }
  // The other rank takes its part in a step.
  void Follow() {
    worker::Step step = Part(true);
    step.set_number(++followed_);
    ASSERT_TRUE(ranks_[1]->worker().BeginStep(step).ok());
    ASSERT_TRUE(ranks_[1]->worker().AwaitStep(followed_, kLimit).ok());
  }

  std::vector<ExchangeStep> steps_{{.window = 0}, {.window = 1}, {.window = 2}};
  std::vector<size_t> done_;  // by the pipe's thread, until it is drained
  uint64_t followed_ = 0;
  std::unique_ptr<StepPipe> pipe_;
};

TEST_F(StepPipeTest, Post_TwoSteps_AreUnderWayAtOnceAndEndInTheirOrder) {
  // Neither ends before rank 1 comes, so the second one is given to the worker while the first one is under way.
  for (const size_t number : {0, 1}) {
    ASSERT_TRUE(pipe_->AwaitRoom().ok());
    ASSERT_TRUE(Post(number, 0).ok());
  }
  Follow();
  ASSERT_TRUE(pipe_->AwaitRoom().ok());
  ASSERT_TRUE(Post(2, 0).ok());
  Follow();
  Follow();
  ASSERT_TRUE(pipe_->Drain().ok());
  EXPECT_EQ(done_, (std::vector<size_t>{0, 1, 2}));
}

TEST_F(StepPipeTest, AwaitPlace_SomebodyHoldsIt_WaitsForTheLast) {
  ASSERT_TRUE(Post(0, 2).ok());
  Follow();
  ASSERT_TRUE(pipe_->Drain().ok());
  ASSERT_TRUE(pipe_->AwaitPlace(1).ok()) << "nobody has used it";
  auto waiting = std::async(std::launch::async, [&] { return pipe_->AwaitPlace(0); });
  pipe_->Release(0);
  EXPECT_EQ(waiting.wait_for(std::chrono::milliseconds(20)), std::future_status::timeout);
  pipe_->Release(0);
  EXPECT_TRUE(waiting.get().ok());
}

// The trainer may hold a window until the next one comes, which a failed step never brings.
TEST_F(StepPipeTest, AwaitPlace_AStepFails_EndsWithItsError) {
  MakePipe(absl::Milliseconds(200));
  ASSERT_TRUE(Post(0, 1).ok());
  Follow();
  ASSERT_TRUE(pipe_->Drain().ok());
  ASSERT_TRUE(Post(1, 1).ok());  // rank 1 does not come
  const absl::Status waited = pipe_->AwaitPlace(0);
  EXPECT_TRUE(HasReason(waited, Reason::kTransportFailed)) << waited;
  EXPECT_EQ(waited.message().rfind("window 1: ", 0), 0u) << waited;
  EXPECT_EQ(pipe_->AwaitRoom(), waited);
  EXPECT_EQ(pipe_->Drain(), waited);
  EXPECT_EQ(done_, std::vector<size_t>{0});
}

TEST_F(StepPipeTest, Drain_TheWorkerDies_SaysSo) {
  ASSERT_TRUE(Post(0, 0).ok());
  kill(ranks_[0]->worker().pid(), SIGKILL);
  const absl::Status drained = pipe_->Drain();
  EXPECT_NE(drained.message().find("window 0: cairn-gpu-worker was ended by signal 9"), std::string::npos) << drained;
}

TEST_F(StepPipeTest, Cancel_WhileOthersWait_TellsThemWhy) {
  ASSERT_TRUE(Post(0, 0).ok());
  auto waiting = std::async(std::launch::async, [&] { return pipe_->Drain(); });
  pipe_->Cancel(MakeError(Reason::kInterrupted, "the load has ended"));
  EXPECT_TRUE(HasReason(waiting.get(), Reason::kInterrupted));
  ranks_[0]->worker().Cancel();
  pipe_->End();
  EXPECT_TRUE(done_.empty());
}

}  // namespace
}  // namespace cairn

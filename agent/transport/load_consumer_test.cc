#include "agent/transport/load_consumer.h"

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace cairn {
namespace {

// Rounds of this rank that stand as soon as they are asked for.
class StandingRounds final : public ByteServer {
 public:
  uint64_t Await(uint32_t, uint32_t round, uint32_t, Done done) override {
    done(RoundBuffer{.descriptor_id = round + 1, .bytes = 4096, .memory = nullptr});
    return 0;
  }
  void Forget(uint64_t) override {}
  void Release(uint32_t, uint32_t released_below) override { released_below_ = released_below; }
  void Stop(const absl::Status&) override {}
  Progress progress() override { return {}; }
  uint32_t released_below() const { return released_below_; }

 private:
  uint32_t released_below_ = 0;
};

class LoadConsumerTest : public ::testing::Test {
 protected:
  using Answer = std::optional<absl::StatusOr<LoadConsumer::Received>>;

  LoadConsumerTest() : pool_(0, 1) {
    for (const uint32_t round : {0, 1}) {
      v1::Copy& copy = *plan_.add_copies();
      copy.set_round(round);
      copy.set_element_bytes(1024);
    }
    LoadConsumerOptions options;
    options.on_error = [](const absl::Status& error) { ADD_FAILURE() << error; };
    consumer_ = std::make_unique<LoadConsumer>(plan_, PeerMap(), rounds_, pool_, std::move(options));
  }

  // Returns what the trainer is told; nothing while it waits.
  std::shared_ptr<Answer> Receive(const std::vector<uint64_t>& released) {
    auto answer = std::make_shared<Answer>();
    consumer_->Receive(released, [answer](absl::StatusOr<LoadConsumer::Received>& now) {
      *answer = std::move(now);
      return true;
    });
    return answer;
  }
  // Makes a call that ends before its answer; `meanwhile` happens between the two.
  void ReceiveTooLate(const std::function<void()>& meanwhile) {
    consumer_->Receive({}, [meanwhile](const absl::StatusOr<LoadConsumer::Received>&) {
      meanwhile();
      return false;
    });
  }
  static std::vector<uint64_t> Numbers(const Answer& answer) {
    std::vector<uint64_t> numbers;
    for (const v1::LoadBatch& batch : (*answer)->batches) numbers.push_back(batch.batch());
    return numbers;
  }

  v1::ReadPlan plan_;
  BufferPool pool_;
  const std::shared_ptr<StandingRounds> rounds_ = std::make_shared<StandingRounds>();
  std::unique_ptr<LoadConsumer> consumer_;
};

TEST_F(LoadConsumerTest, Receive_TheCallIsOverBeforeItsAnswer_TheNextCallGetsTheBatches) {
  consumer_->Start();
  ReceiveTooLate([] {});
  const auto again = Receive({});
  ASSERT_TRUE(again->has_value());
  EXPECT_EQ(Numbers(*again), (std::vector<uint64_t>{1, 2}));
  EXPECT_TRUE((*again)->value().complete);
  EXPECT_EQ(rounds_->released_below(), 0u) << "the buffers are still to be copied";
  const auto last = Receive({1, 2});
  ASSERT_TRUE(last->has_value());
  EXPECT_TRUE(Numbers(*last).empty());
  EXPECT_EQ(rounds_->released_below(), 2u);
}

// The timer of a call may end it while its answer, with the last batches, is on its way, and the trainer asks again.
TEST_F(LoadConsumerTest, Receive_TheNextCallComesWhileTheAnswerIsOnItsWay_IsNotCompleteWithoutIt) {
  consumer_->Start();
  std::shared_ptr<Answer> next;
  ReceiveTooLate([&] {
    next = Receive({});
    EXPECT_FALSE(next->has_value());
  });
  ASSERT_TRUE(next->has_value());
  EXPECT_EQ(Numbers(*next), (std::vector<uint64_t>{1, 2}));
}

TEST_F(LoadConsumerTest, Receive_OneBatchIsKept_IsNotGivenAgain) {
  consumer_->Start();
  EXPECT_EQ(Numbers(*Receive({})), (std::vector<uint64_t>{1, 2}));
  EXPECT_TRUE(Numbers(*Receive({1})).empty());
  EXPECT_EQ(rounds_->released_below(), 1u);
}

TEST_F(LoadConsumerTest, Receive_AnEarlierCallStillWaits_TheLaterOneGetsTheBatches) {
  const auto earlier = Receive({});
  EXPECT_FALSE(earlier->has_value());
  const auto later = Receive({});
  ASSERT_TRUE(earlier->has_value());
  EXPECT_TRUE(Numbers(*earlier).empty());
  EXPECT_FALSE((*earlier)->value().complete);
  consumer_->Start();
  ASSERT_TRUE(later->has_value());
  EXPECT_EQ(Numbers(*later), (std::vector<uint64_t>{1}));  // the first that was ready
}

TEST_F(LoadConsumerTest, Stop_ACallWaits_IsToldWhy) {
  const auto waits = Receive({});
  consumer_->Stop(absl::DataLossError("the file is torn"));
  ASSERT_TRUE(waits->has_value());
  EXPECT_EQ((*waits)->status().message(), "the file is torn");
}

}  // namespace
}  // namespace cairn

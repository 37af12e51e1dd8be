#include "agent/transport/load_consumer.h"

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "common/status/reason.h"

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

// Rounds of this rank that it reads itself. What it says of them is kept until the test answers.
class LentRounds final : public ByteServer {
 public:
  uint64_t Await(uint32_t, uint32_t round, uint32_t, Done done) override {
    RoundBuffer buffer{.descriptor_id = 50 + round, .bytes = 4096, .memory = nullptr};
    if (!in_buffers_) {
      LentRound lent;
      lent.files = {{.file = 7, .descriptor_id = 9, .begin = 100, .may_wait = true}};
      lent.pieces = {{.file = 7, .offset = 20, .target = 0, .target_offset = 5, .fragment = {.bytes = 1024}}};
      buffer.lent = std::make_shared<LentRound>(lent);
    }
    done(std::move(buffer));
    return 0;
  }
  void Forget(uint64_t) override {}
  void Release(uint32_t, uint32_t released_below) override { released_below_ = released_below; }
  void Check(uint32_t round, PiecesRead read, Checked done) override {
    checks_.push_back({round, std::move(read), std::move(done)});
  }
  void Stop(const absl::Status&) override {}
  Progress progress() override { return {}; }

  struct Said {
    uint32_t round;
    PiecesRead read;
    Checked done;
  };
  bool in_buffers_ = false;
  uint32_t released_below_ = 0;
  std::vector<Said> checks_;
};

class LentConsumerTest : public LoadConsumerTest {
 protected:
  LentConsumerTest() {
    LoadConsumerOptions options;
    options.on_error = [this](const absl::Status& error) { error_ = error; };
    consumer_ = std::make_unique<LoadConsumer>(plan_, PeerMap(), lent_, pool_, std::move(options));
  }
  void TakeRead(uint64_t batch, uint32_t checksum) {
    v1::ReadBatch read;
    read.set_batch(batch);
    read.add_checksums(checksum);
    consumer_->TakeRead(read);
  }

  const std::shared_ptr<LentRounds> lent_ = std::make_shared<LentRounds>();
  absl::Status error_;
};

TEST_F(LentConsumerTest, Receive_ALentRound_NamesFilesAndPieces) {
  consumer_->Start();
  const auto answer = Receive({});
  ASSERT_TRUE(answer->has_value() && (*answer)->ok());
  ASSERT_EQ((*answer)->value().batches.size(), 2u);
  const v1::LoadBatch& batch = (*answer)->value().batches[0];
  EXPECT_EQ(batch.files(0).file().descriptor_id(), 9u);
  EXPECT_TRUE(batch.files(0).may_wait());
  EXPECT_EQ(batch.pieces(0).offset(), 120u) << "behind the descriptor";
  EXPECT_EQ(batch.pieces(0).bytes(), 1024u);
  EXPECT_EQ(batch.pieces(0).target_offset(), 5u);
  EXPECT_FALSE(batch.has_buffer());
  EXPECT_FALSE((*answer)->value().complete);
}

TEST_F(LentConsumerTest, TakeRead_AllAreRight_TheLoadIsComplete) {
  consumer_->Start();
  Receive({});
  TakeRead(1, 11);
  TakeRead(1, 12);  // a call that was repeated
  ASSERT_EQ(lent_->checks_.size(), 1u);
  EXPECT_EQ(lent_->checks_[0].read.checksums, std::vector<uint32_t>{11});
  const auto waits = Receive({1});
  EXPECT_FALSE(waits->has_value());
  lent_->checks_[0].done(true);
  EXPECT_EQ(lent_->released_below_, 1u);
  EXPECT_FALSE(waits->has_value());
  TakeRead(2, 13);
  lent_->checks_[1].done(true);
  ASSERT_TRUE(waits->has_value());
  EXPECT_TRUE((*waits)->value().complete);
  EXPECT_EQ(lent_->released_below_, 2u);
  consumer_->ReleaseAll();
  EXPECT_TRUE(error_.ok()) << error_;
}

TEST_F(LentConsumerTest, TakeRead_OneIsWrong_ComesOutOfABuffer) {
  consumer_->Start();
  Receive({});
  TakeRead(1, 11);
  TakeRead(2, 12);
  lent_->in_buffers_ = true;
  lent_->checks_[0].done(false);
  lent_->checks_[1].done(true);
  const auto again = Receive({});
  EXPECT_EQ(Numbers(*again), std::vector<uint64_t>{3});
  const v1::LoadBatch& batch = (*again)->value().batches[0];
  EXPECT_EQ(batch.buffer().descriptor_id(), 50u);
  EXPECT_EQ(batch.copies_size(), 1);
  EXPECT_TRUE((*again)->value().complete);
  EXPECT_EQ(lent_->released_below_, 0u);
  Receive({3});
  EXPECT_EQ(lent_->released_below_, 2u);
}

TEST_F(LentConsumerTest, TakeRead_TheFileIsDamaged_TheLoadFails) {
  consumer_->Start();
  Receive({});
  TakeRead(1, 11);
  lent_->checks_[0].done(absl::DataLossError("the file is torn"));
  EXPECT_EQ(error_.message(), "the file is torn");
  EXPECT_EQ((*Receive({}))->status().message(), "the file is torn");
}

TEST_F(LentConsumerTest, ReleaseAll_ABatchIsNotRead_TheLoadFails) {
  consumer_->Start();
  Receive({});
  consumer_->ReleaseAll();
  EXPECT_TRUE(HasReason(error_, Reason::kBadRequest)) << error_;
}

}  // namespace
}  // namespace cairn

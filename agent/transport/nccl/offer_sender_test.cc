#include "agent/transport/nccl/offer_sender.h"

#include <gtest/gtest.h>

#include <future>
#include <vector>

#include "agent/transport/testing/scripted_source.h"
#include "agent/transport/window_offers.h"
#include "common/status/reason.h"
#include "common/status/status.h"

namespace cairn {
namespace {

using testing::ScriptedSource;

class OfferSenderTest : public ::testing::Test {
 protected:
  OfferSenderTest() {
    source_.offer = [](const v1::OfferWindowsRequest&) { return absl::OkStatus(); };
  }
  static OfferSenderOptions Options() {
    return {{.job = "demo", .plan_digest = "plan", .consumer_rank = 2, .load_token = "secret"}};
  }
  // Returns a window of `count` single bytes.
  static OfferedCopies Window(uint32_t round, uint32_t window, size_t count) {
    OfferedCopies offered{.round = round, .window = window};
    for (size_t at = 0; at < count; ++at) {
      v1::Copy copy;
      copy.set_source_offset(at);
      copy.set_element_bytes(1);
      copy.set_target_offset(99);  // of no interest to the source
      offered.copies.copies.push_back(copy);
    }
    return offered;
  }

  ScriptedSource source_;
};

TEST_F(OfferSenderTest, Send_NothingIsTaken_SaysThatInOneCall) {
  OfferSender sender(Options());
  ASSERT_TRUE(sender.Send(source_.peer(), {}).ok());
  const auto offered = source_.offered();
  ASSERT_EQ(offered.size(), 1u);
  EXPECT_TRUE(offered[0].last());
  EXPECT_EQ(offered[0].windows_size(), 0);
  EXPECT_EQ(offered[0].transfer().source_rank(), 7u);
  EXPECT_EQ(offered[0].transfer().token(), "secret");
}

TEST_F(OfferSenderTest, Send_MoreThanOneCallHolds_ArrivesWholeAtTheSource) {
  const std::vector<OfferedCopies> windows = {Window(0, 0, 5000), Window(0, 1, 5000), Window(2, 0, 10000),
                                              Window(2, 1, 1)};
  OfferSender sender(Options());
  ASSERT_TRUE(sender.Send(source_.peer(), windows).ok());
  const auto offered = source_.offered();
  ASSERT_EQ(offered.size(), 3u);
  v1::ReadPlan plan;
  for (int round = 0; round < 3; ++round) {
    plan.add_rounds()->set_buffer_bytes(1 << 20);
    plan.mutable_rounds(round)->add_consumers(2);
  }
  WindowOffers received(plan);
  for (size_t part = 0; part < offered.size(); ++part) {
    EXPECT_EQ(offered[part].part(), part);
    EXPECT_EQ(offered[part].last(), part == 2);
    ASSERT_TRUE(received.Take(offered[part]).ok());
  }
  const auto taken = received.Await({2}, absl::Seconds(10));
  ASSERT_TRUE(taken.ok()) << taken.status();
  const std::vector<OfferedCopies>& arrived = taken->at(2);
  ASSERT_EQ(arrived.size(), windows.size());
  for (size_t at = 0; at < windows.size(); ++at) {
    EXPECT_EQ(arrived[at].round, windows[at].round);
    EXPECT_EQ(arrived[at].window, windows[at].window);
    ASSERT_EQ(arrived[at].copies.copies.size(), windows[at].copies.copies.size()) << at;
    EXPECT_EQ(arrived[at].copies.copies.back().source_offset(), windows[at].copies.copies.back().source_offset());
    EXPECT_EQ(arrived[at].copies.copies.back().target_offset(), 0u);
  }
}

TEST_F(OfferSenderTest, Send_SourceRefuses_NamesItAndSendsNoMore) {
  source_.offer = [](const v1::OfferWindowsRequest&) { return MakeError(Reason::kBadRequest, "too many copies"); };
  OfferSender sender(Options());
  const absl::Status status = sender.Send(source_.peer(), {Window(0, 0, 10000)}).status();
  EXPECT_TRUE(HasReason(status, Reason::kBadRequest)) << status;
  EXPECT_NE(status.message().find("from rank 7"), std::string::npos) << status;
  EXPECT_EQ(source_.offered().size(), 1u);
}

TEST_F(OfferSenderTest, Cancel_CallHangs_EndsItAndAllThatFollow) {
  std::promise<void> asked;
  source_.offer = [&](const v1::OfferWindowsRequest&) {
    asked.set_value();
    return ScriptedSource::Hang();
  };
  OfferSender sender(Options());
  auto sending = std::async(std::launch::async, [&] { return sender.Send(source_.peer(), {Window(0, 0, 1)}); });
  asked.get_future().wait();
  sender.Cancel();
  EXPECT_FALSE(sending.get().ok());
  EXPECT_TRUE(HasReason(sender.Send(source_.peer(), {}).status(), Reason::kInterrupted));
  EXPECT_EQ(source_.offered().size(), 1u);
}

TEST_F(OfferSenderTest, Send_OthersHaveNotToldYet_AsksAgainAndReturnsWhatIsBroadcast) {
  source_.answer_offer = [calls = 0](v1::OfferWindowsResponse& response) mutable {
    response.set_decided(++calls == 3);
    if (response.decided()) response.add_broadcast_windows(1);
  };
  OfferSender sender(Options());
  const auto broadcast = sender.Send(source_.peer(), {Window(0, 0, 1), Window(0, 1, 1)});
  ASSERT_TRUE(broadcast.ok()) << broadcast.status();
  EXPECT_EQ(*broadcast, std::vector<uint32_t>{1});
  EXPECT_EQ(source_.offered().size(), 3u);
}

TEST_F(OfferSenderTest, Send_OthersNeverTell_NamesThem) {
  source_.answer_offer = [](v1::OfferWindowsResponse& response) {
    response.set_decided(false);
    response.add_missing_ranks(3);
    response.add_missing_ranks(4);
  };
  OfferSenderOptions options = Options();
  options.others_timeout = absl::Milliseconds(1);
  OfferSender sender(options);
  const absl::Status error = sender.Send(source_.peer(), {}).status();
  EXPECT_TRUE(HasReason(error, Reason::kTransportFailed)) << error;
  EXPECT_EQ(MetadataOf(error)["ranks"], "3, 4");
}

TEST_F(OfferSenderTest, Send_TheSourceDoesNotKnowTheLoadYet_TellsItAgain) {
  source_.offer = [calls = 0](const v1::OfferWindowsRequest&) mutable {
    return ++calls < 3 ? MakeError(Reason::kPlanUnknown, "the load is not known here") : absl::OkStatus();
  };
  OfferSender sender(Options());
  EXPECT_TRUE(sender.Send(source_.peer(), {Window(0, 0, 1)}).ok());
  EXPECT_EQ(source_.offered().size(), 3u);
}

TEST_F(OfferSenderTest, Send_TheSourceNeverKnowsTheLoad_IsGivenUp) {
  source_.offer = [](const v1::OfferWindowsRequest&) { return MakeError(Reason::kPlanUnknown, "never heard of it"); };
  OfferSenderOptions options = Options();
  options.unknown_timeout = absl::Milliseconds(1);
  OfferSender sender(options);
  const absl::Status error = sender.Send(source_.peer(), {}).status();
  EXPECT_TRUE(HasReason(error, Reason::kPlanUnknown)) << error;
  EXPECT_EQ(MetadataOf(error)["ranks"], "7");
}

}  // namespace
}  // namespace cairn

#include "agent/transport/host_round_fetcher.h"

#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "agent/transport/testing/scripted_source.h"
#include "common/status/reason.h"
#include "common/status/status.h"

namespace cairn {
namespace {

using testing::ScriptedSource;

class HostRoundFetcherTest : public ::testing::Test {
 protected:
  static HostRoundFetcherOptions Options() {
    return {{.job = "demo", .plan_digest = "plan", .consumer_rank = 2, .load_token = "secret"}};
  }
  // Awaits a round and returns what came of it.
  static absl::StatusOr<SourceRound> Await(HostRoundFetcher& fetcher, uint32_t round, uint32_t released_below = 0) {
    std::promise<absl::StatusOr<SourceRound>> came;
    fetcher.Await(round, released_below, [&](absl::StatusOr<SourceRound> found) { came.set_value(std::move(found)); });
    return came.get_future().get();
  }
  static std::vector<v1::Copy> SingleBytes(size_t count) {
    std::vector<v1::Copy> copies(count);
    for (size_t at = 0; at < count; ++at) {
      copies[at].set_source_offset(at);
      copies[at].set_element_bytes(1);
    }
    return copies;
  }
  // Sends the byte `offset % 251` for each copy of a single byte.
  static absl::Status SendThem(const v1::FetchCopiesRequest& request, ScriptedSource::Bytes& messages) {
    std::string packed;
    for (const v1::Copy& copy : request.copies()) packed += static_cast<char>(copy.source_offset() % 251);
    messages = {packed.substr(0, packed.size() / 2), packed.substr(packed.size() / 2)};
    return absl::OkStatus();
  }

  ScriptedSource source_;
};

TEST_F(HostRoundFetcherTest, Await_RoundIsNotReadyYet_AsksAgainUntilItIs) {
  int asked = 0;
  source_.await = [&](const v1::AwaitRoundRequest&, v1::AwaitRoundResponse& response) {
    response.set_ready(++asked == 3);
    response.set_descriptor_id(5);
    response.set_bytes(4096);
    return absl::OkStatus();
  };
  HostRoundFetcher fetcher(source_.peer(), Options());
  const auto found = Await(fetcher, 4, 3);
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(found->descriptor_id, 5u);
  EXPECT_EQ(found->bytes, 4096u);
  const auto awaited = source_.awaited();
  ASSERT_EQ(awaited.size(), 3u);
  for (const v1::AwaitRoundRequest& request : awaited) {
    EXPECT_EQ(request.round(), 4u);
    EXPECT_EQ(request.released_below(), 3u);
    EXPECT_EQ(request.transfer().job(), "demo");
    EXPECT_EQ(request.transfer().token(), "secret");
    EXPECT_EQ(request.transfer().consumer_rank(), 2u);
    EXPECT_EQ(request.transfer().source_rank(), 7u);
    EXPECT_EQ(request.transfer().source_incarnation(), 11u);
  }
}

TEST_F(HostRoundFetcherTest, Await_LoadIsNotKnownThereYet_AsksAgain) {
  int asked = 0;
  source_.await = [&](const v1::AwaitRoundRequest&, v1::AwaitRoundResponse& response) -> absl::Status {
    if (++asked < 3) return MakeError(Reason::kPlanUnknown, "no such load");
    response.set_ready(true);
    return absl::OkStatus();
  };
  HostRoundFetcher fetcher(source_.peer(), Options());
  EXPECT_TRUE(Await(fetcher, 0).ok());
  EXPECT_EQ(source_.awaited().size(), 3u);
}

TEST_F(HostRoundFetcherTest, Await_SourceFails_IsToldItsErrorAndItsRank) {
  source_.await = [](const v1::AwaitRoundRequest&, v1::AwaitRoundResponse&) {
    return MakeError(Reason::kChecksumMismatch, "the bin is damaged");
  };
  HostRoundFetcher fetcher(source_.peer(), Options());
  const auto found = Await(fetcher, 0);
  EXPECT_TRUE(HasReason(found.status(), Reason::kChecksumMismatch)) << found.status();
  EXPECT_NE(found.status().message().find("from rank 7"), std::string::npos) << found.status();
  EXPECT_EQ(source_.awaited().size(), 1u);
}

TEST_F(HostRoundFetcherTest, Await_SourceCannotBeReached_IsGivenUpByName) {
  std::optional<ScriptedSource> gone(std::in_place);
  const v1::TransferPeer peer = gone->peer();
  gone.reset();
  HostRoundFetcherOptions options = Options();
  options.unreachable_timeout = absl::Milliseconds(200);
  HostRoundFetcher fetcher(peer, options);
  const auto found = Await(fetcher, 0);
  EXPECT_TRUE(HasReason(found.status(), Reason::kTransportFailed)) << found.status();
  EXPECT_NE(found.status().message().find("rank 2 cannot get its bytes from rank 7"), std::string::npos)
      << found.status();
}

// The agent has ended, and another program has got its port.
TEST_F(HostRoundFetcherTest, Await_SomethingElseListensThere_IsGivenUpByName) {
  source_.await = [](const v1::AwaitRoundRequest&, v1::AwaitRoundResponse&) { return absl::UnimplementedError(""); };
  source_.fetch = [](const v1::FetchCopiesRequest&, ScriptedSource::Bytes&) { return absl::UnimplementedError(""); };
  HostRoundFetcherOptions options = Options();
  options.unreachable_timeout = absl::Milliseconds(200);
  HostRoundFetcher fetcher(source_.peer(), options);
  EXPECT_TRUE(HasReason(Await(fetcher, 0).status(), Reason::kTransportFailed));
  char byte = 0;
  EXPECT_TRUE(HasReason(fetcher.Fetch(0, SingleBytes(1), &byte, 1), Reason::kTransportFailed));
}

TEST_F(HostRoundFetcherTest, Release_NothingIsAwaited_TellsTheSource) {
  std::promise<void> told;
  source_.await = [&](const v1::AwaitRoundRequest&, v1::AwaitRoundResponse&) {
    told.set_value();
    return absl::OkStatus();
  };
  HostRoundFetcher fetcher(source_.peer(), Options());
  fetcher.Release(6, [](const absl::Status& error) { ADD_FAILURE() << error; });
  told.get_future().wait();
  EXPECT_EQ(source_.awaited().at(0).released_below(), 6u);
  EXPECT_EQ(source_.awaited().at(0).max_wait().seconds(), 0);
}

TEST_F(HostRoundFetcherTest, Release_LoadIsOverThere_IsNoFault) {
  std::promise<void> told;
  source_.await = [&](const v1::AwaitRoundRequest&, v1::AwaitRoundResponse&) {
    told.set_value();
    return MakeError(Reason::kPlanUnknown, "no such load");
  };
  HostRoundFetcher fetcher(source_.peer(), Options());
  fetcher.Release(6, [](const absl::Status& error) { ADD_FAILURE() << error; });
  told.get_future().wait();
  fetcher.Stop();
  EXPECT_EQ(source_.awaited().size(), 1u);
}

TEST_F(HostRoundFetcherTest, Fetch_MoreCopiesThanOneCallAsksFor_FillsInTheirOrder) {
  source_.fetch = SendThem;
  HostRoundFetcher fetcher(source_.peer(), Options());
  const auto copies = SingleBytes(2 * 8192 + 5);
  std::string filled(copies.size(), '\xff');
  ASSERT_TRUE(fetcher.Fetch(1, copies, filled.data(), filled.size()).ok());
  for (size_t at = 0; at < filled.size(); ++at) ASSERT_EQ(filled[at], static_cast<char>(at % 251)) << at;
  const auto fetched = source_.fetched();
  ASSERT_EQ(fetched.size(), 3u);
  EXPECT_EQ(fetched[0].copies_size(), 8192);
  EXPECT_EQ(fetched[2].copies_size(), 5);
}

TEST_F(HostRoundFetcherTest, Fetch_SourceSendsAnotherNumberOfBytes_IsRefusedAndWritesNoMore) {
  for (const size_t sent : {0u, 3u, 5u, 4096u}) {
    source_.fetch = [&](const v1::FetchCopiesRequest&, ScriptedSource::Bytes& messages) {
      messages = {std::string(sent, 'x')};
      return absl::OkStatus();
    };
    HostRoundFetcher fetcher(source_.peer(), Options());
    std::string filled = "....|";
    const absl::Status status = fetcher.Fetch(1, SingleBytes(4), filled.data(), 4);
    EXPECT_TRUE(HasReason(status, Reason::kTransportFailed)) << sent << ": " << status;
    EXPECT_NE(status.message().find("of round 1 instead of 4"), std::string::npos) << status;
    EXPECT_EQ(filled[4], '|');
  }
}

TEST_F(HostRoundFetcherTest, Fetch_LoadIsOverThere_WaitsUntilItIsCancelledHereToo) {
  std::promise<void> asked;
  source_.fetch = [&](const v1::FetchCopiesRequest&, ScriptedSource::Bytes&) {
    asked.set_value();
    return MakeError(Reason::kPlanUnknown, "no such load");
  };
  HostRoundFetcher fetcher(source_.peer(), Options());
  char byte = 0;
  auto fetching = std::async(std::launch::async, [&] { return fetcher.Fetch(0, SingleBytes(1), &byte, 1); });
  asked.get_future().wait();
  EXPECT_EQ(fetching.wait_for(std::chrono::milliseconds(50)), std::future_status::timeout);
  fetcher.Cancel();
  EXPECT_FALSE(fetching.get().ok());
}

TEST_F(HostRoundFetcherTest, Cancel_CallsHang_EndsThemAllAndLetsNoneBegin) {
  std::promise<void> awaiting, fetching;
  source_.await = [&](const v1::AwaitRoundRequest&, v1::AwaitRoundResponse&) {
    awaiting.set_value();
    return ScriptedSource::Hang();
  };
  source_.fetch = [&](const v1::FetchCopiesRequest&, ScriptedSource::Bytes&) {
    fetching.set_value();
    return ScriptedSource::Hang();
  };
  HostRoundFetcher fetcher(source_.peer(), Options());
  fetcher.Await(0, 0, [](const absl::StatusOr<SourceRound>& found) { EXPECT_FALSE(found.ok()); });
  char byte = 0;
  auto fetched = std::async(std::launch::async, [&] { return fetcher.Fetch(0, SingleBytes(1), &byte, 1); });
  awaiting.get_future().wait();
  fetching.get_future().wait();
  fetcher.Cancel();
  EXPECT_FALSE(fetched.get().ok());
  fetcher.Await(1, 0, [](const absl::StatusOr<SourceRound>&) { ADD_FAILURE() << "it was cancelled"; });
  fetcher.Stop();
  EXPECT_TRUE(HasReason(fetcher.Fetch(0, SingleBytes(1), &byte, 1), Reason::kInterrupted));
  EXPECT_EQ(source_.awaited().size(), 1u);
  EXPECT_EQ(source_.fetched().size(), 1u);
}

}  // namespace
}  // namespace cairn

#include "agent/transport/shard_fetcher.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <future>
#include <memory>
#include <optional>
#include <string>

#include "agent/sockets/descriptor_socket.h"
#include "agent/staging/shared_memory.h"
#include "agent/testing/layouts.h"
#include "agent/transport/testing/scripted_source.h"
#include "common/base/random_id.h"
#include "common/status/reason.h"
#include "common/status/status.h"

namespace cairn {
namespace {

using testing::MakeLayout;
using testing::MakeMovingPlan;
using testing::ScriptedSource;
using testing::Whole;

constexpr uint64_t kBytes = 5000;       // of the shard that moves
constexpr uint64_t kOffset = 8192;      // where it lies in its rank's slab
constexpr uint64_t kSlabBytes = 16384;  // of that rank
constexpr uint32_t kShard = 3;          // its number in that rank's layout

// Rank 0 writes a shard of rank 7, whose agent is the scripted one.
class ShardFetcherTest : public ::testing::Test {
 protected:
  ShardFetcherTest() {
    order_.set_step(40);
    order_.set_attempt(2);
    order_.set_transfer_token("secret");
    source_.await = [this](const v1::AwaitRoundRequest&, v1::AwaitRoundResponse& response) {
      response = staged_;
      return absl::OkStatus();
    };
    source_.fetch = [](const v1::FetchCopiesRequest& request, ScriptedSource::Bytes& messages) {
      const v1::Copy& copy = request.copies(0);
      messages = {Slab().substr(copy.source_offset(), copy.element_bytes())};
      return absl::OkStatus();
    };
    staged_.set_ready(true);
    staged_.set_bytes(kSlabBytes);
    v1::StagedShard& shard = *staged_.add_staged_shards();
    shard.set_shard(kShard);
    shard.set_offset(kOffset);
    shard.set_bytes(kBytes);
  }

  static std::string Slab() { return testing::Pattern("slab of rank 7", kSlabBytes); }
  static std::string Expected(uint64_t offset, uint64_t bytes) { return Slab().substr(kOffset + offset, bytes); }

  std::unique_ptr<ShardFetcher> Fetcher(ShardFetcherOptions options = {}) {
    return Fetcher(source_.peer(), std::move(options));
  }
  std::unique_ptr<ShardFetcher> Fetcher(const v1::TransferPeer& peer, ShardFetcherOptions options = {}) {
    const auto layout = MakeLayout({Whole("a", DType::kUint8, {10})}, {});
    const testing::MovedInShard moved = {7, kShard, Whole("m", DType::kUint8, {kBytes})};
    auto image = MakeSaveImage(layout, MakeMovingPlan(*layout, 0, {{0, 1}}, "plan", {moved}, {}));
    EXPECT_TRUE(image.ok()) << image.status();
    options.job = "demo";
    return std::make_unique<ShardFetcher>(*image, order_, PeerMap{{7, peer}}, std::move(options));
  }
  // Fetches [offset, offset + bytes) of the shard.
  static absl::StatusOr<std::string> Fetch(ShardFetcher& fetcher, uint64_t offset, uint64_t bytes) {
    std::string filled(bytes, '\0');
    if (absl::Status status = fetcher.Fetch(0, offset, bytes, filled.data()); !status.ok()) return status;
    return filled;
  }
  static void ExpectRefusal(const absl::StatusOr<std::string>& fetched, Reason reason, const std::string& said) {
    EXPECT_TRUE(HasReason(fetched.status(), reason)) << fetched.status();
    EXPECT_NE(fetched.status().message().find(said), std::string::npos) << fetched.status();
  }

  ScriptedSource source_;
  v1::SaveOrder order_;
  v1::AwaitRoundResponse staged_;
};

TEST_F(ShardFetcherTest, Fetch_SourceOnAnotherMachine_CopiesItsBytesOverGrpc) {
  const auto fetcher = Fetcher();
  EXPECT_EQ(fetcher->transport(), "");
  for (const auto& [offset, bytes] : {std::pair<uint64_t, uint64_t>{0, kBytes}, {4096, 904}, {17, 1}}) {
    const auto fetched = Fetch(*fetcher, offset, bytes);
    ASSERT_TRUE(fetched.ok()) << fetched.status();
    EXPECT_EQ(*fetched, Expected(offset, bytes));
  }
  EXPECT_EQ(fetcher->transport(), "grpc");
  ASSERT_EQ(source_.awaited().size(), 1u) << "a source is asked once whether it has staged";
  const v1::TransferIdentity identity = source_.awaited()[0].transfer();
  EXPECT_EQ(identity.job(), "demo");
  EXPECT_EQ(identity.step(), 40);
  EXPECT_EQ(identity.attempt(), 2u);
  EXPECT_EQ(identity.token(), "secret");
  EXPECT_EQ(identity.source_rank(), 7u);
  EXPECT_EQ(identity.source_incarnation(), 11u);
}

TEST_F(ShardFetcherTest, Fetch_SourceOnThisMachine_CopiesOutOfItsSlab) {
  // A socket's path has at most 107 bytes, and a test's own directory may be deeper.
  const std::string directory = "/tmp/cairn-shards-" + RandomToken(6);
  std::filesystem::create_directories(directory);
  auto socket = DescriptorSocket::Listen(directory + "/socket", UserPolicy(), {"demo", 7, 11});
  ASSERT_TRUE(socket.ok()) << socket.status();
  auto slab = *SharedMemory::Create("slab", kSlabBytes);
  std::memcpy(slab->data(), Slab().data(), kSlabBytes);
  staged_.set_descriptor_id(*(*socket)->Offer(slab, /*read_only=*/true));
  v1::TransferPeer peer = source_.peer();
  peer.set_boot_id("boot");
  peer.set_descriptor_socket((*socket)->path());

  const auto fetcher = Fetcher(peer, {.boot_id = "boot"});
  const auto fetched = Fetch(*fetcher, 100, kBytes - 100);
  ASSERT_TRUE(fetched.ok()) << fetched.status();
  EXPECT_EQ(*fetched, Expected(100, kBytes - 100));
  EXPECT_EQ(fetcher->transport(), "shared-memory");
  EXPECT_TRUE(source_.fetched().empty());

  // Memory that somebody may still write to is refused.
  staged_.set_descriptor_id(*(*socket)->Offer(*SharedMemory::Create("open", kSlabBytes), /*read_only=*/false));
  ExpectRefusal(Fetch(*Fetcher(peer, {.boot_id = "boot"}), 0, 1), Reason::kMemoryUnsealed, "rank 7");
  // Another machine of the same path, and shared memory that is switched off, go over the network.
  EXPECT_EQ(Fetch(*Fetcher(peer, {.boot_id = "another"}), 0, 3).value_or(""), Expected(0, 3));
  EXPECT_EQ(Fetch(*Fetcher(peer, {.boot_id = "boot", .shared_memory = false}), 0, 3).value_or(""), Expected(0, 3));
  EXPECT_EQ(source_.fetched().size(), 2u);
  socket->reset();
  std::filesystem::remove_all(directory);
}

TEST_F(ShardFetcherTest, Fetch_SourceHasNotStaged_AsksAgainAndNamesItMeanwhile) {
  std::promise<void> asked_twice, go_on;
  int asked = 0;
  source_.await = [&](const v1::AwaitRoundRequest&, v1::AwaitRoundResponse& response) -> absl::Status {
    ++asked;
    if (asked == 1) return MakeError(Reason::kPlanUnknown, "not heard of yet");
    if (asked == 2) return absl::OkStatus();  // not ready
    asked_twice.set_value();
    go_on.get_future().wait();
    response = staged_;
    return absl::OkStatus();
  };
  const auto fetcher = Fetcher();
  EXPECT_TRUE(fetcher->waiting_for().empty());
  auto fetching = std::async(std::launch::async, [&] { return Fetch(*fetcher, 0, 8); });
  asked_twice.get_future().wait();
  EXPECT_EQ(fetcher->waiting_for(), std::vector<uint32_t>{7});
  go_on.set_value();
  const auto fetched = fetching.get();
  ASSERT_TRUE(fetched.ok()) << fetched.status();
  EXPECT_EQ(*fetched, Expected(0, 8));
  EXPECT_TRUE(fetcher->waiting_for().empty());
}

TEST_F(ShardFetcherTest, Fetch_SourceLendsOtherThanThePlanSays_IsRefused) {
  const v1::AwaitRoundResponse good = staged_;
  const auto expect = [&](const std::string& said) {
    ExpectRefusal(Fetch(*Fetcher(), 0, 1), Reason::kTransportFailed, said);
    staged_ = good;
  };
  staged_.mutable_staged_shards(0)->set_offset(kSlabBytes - kBytes + 1);
  expect("lies outside of its staging buffer");
  staged_.mutable_staged_shards(0)->set_offset(UINT64_MAX);
  expect("lies outside of its staging buffer");
  staged_.mutable_staged_shards(0)->set_bytes(UINT64_MAX);
  expect("lies outside of its staging buffer");
  staged_.mutable_staged_shards(0)->set_bytes(kBytes - 1);
  expect("does not lend m, by the plan 5000 bytes");
  staged_.mutable_staged_shards(0)->set_shard(kShard + 1);
  expect("does not lend m");
  staged_.clear_staged_shards();
  expect("does not lend m");
  EXPECT_TRUE(source_.fetched().empty());
}

TEST_F(ShardFetcherTest, Fetch_SourceSendsAnotherNumberOfBytes_IsRefused) {
  for (const size_t sent : {0u, 3u, 5u, 4096u}) {
    source_.fetch = [&](const v1::FetchCopiesRequest&, ScriptedSource::Bytes& messages) {
      messages = {std::string(sent, 'x')};
      return absl::OkStatus();
    };
    ExpectRefusal(Fetch(*Fetcher(), 0, 4), Reason::kTransportFailed, "instead of 4");
  }
}

TEST_F(ShardFetcherTest, Fetch_SourceIsNotTheOneOfThePlan_SaysSo) {
  source_.await = [](const v1::AwaitRoundRequest&, v1::AwaitRoundResponse&) {
    return MakeError(Reason::kStaleIncarnation, "another process");
  };
  ExpectRefusal(Fetch(*Fetcher(), 0, 1), Reason::kTransportFailed, "rank 7: its agent was restarted");
  v1::TransferPeer unknown;
  ExpectRefusal(Fetch(*Fetcher(unknown), 0, 1), Reason::kTransportFailed, "its address is not known");
}

TEST_F(ShardFetcherTest, Fetch_SourceFails_IsToldItsError) {
  source_.await = [](const v1::AwaitRoundRequest&, v1::AwaitRoundResponse&) {
    return MakeError(Reason::kSaveCancelled, "the save has ended");
  };
  ExpectRefusal(Fetch(*Fetcher(), 0, 1), Reason::kSaveCancelled, "the save has ended");
}

TEST_F(ShardFetcherTest, Fetch_SourceCannotBeReached_IsGivenUpByName) {
  std::optional<ScriptedSource> gone(std::in_place);
  const v1::TransferPeer peer = gone->peer();
  gone.reset();
  ExpectRefusal(Fetch(*Fetcher(peer, {.unreachable_timeout = absl::Milliseconds(200)}), 0, 1), Reason::kTransportFailed,
                "for rank 7");
}

// The agent has ended, and another program has got its port.
TEST_F(ShardFetcherTest, Fetch_SourceDoesNotAnswer_IsNamedMeanwhileAndTriedOnce) {
  std::promise<void> asked, go_on;
  source_.await = [&](const v1::AwaitRoundRequest&, v1::AwaitRoundResponse&) {
    asked.set_value();
    go_on.get_future().wait();
    return MakeError(Reason::kStorageError, "of its own");
  };
  const auto fetcher = Fetcher();
  auto fetching = std::async(std::launch::async, [&] { return Fetch(*fetcher, 0, 1); });
  asked.get_future().wait();
  EXPECT_EQ(fetcher->waiting_for(), std::vector<uint32_t>{7}) << "nobody knows yet whether it answers";
  go_on.set_value();
  ExpectRefusal(fetching.get(), Reason::kStorageError, "of its own");
  EXPECT_TRUE(fetcher->waiting_for().empty());
  ExpectRefusal(Fetch(*fetcher, 1, 1), Reason::kStorageError, "of its own");
  EXPECT_EQ(source_.awaited().size(), 1u);
}

TEST_F(ShardFetcherTest, Fetch_SomethingElseListensThere_IsGivenUpByName) {
  source_.await = [](const v1::AwaitRoundRequest&, v1::AwaitRoundResponse&) { return absl::UnimplementedError(""); };
  ExpectRefusal(Fetch(*Fetcher({.unreachable_timeout = absl::Milliseconds(200)}), 0, 1), Reason::kTransportFailed,
                "for rank 7");
  source_.await = [this](const v1::AwaitRoundRequest&, v1::AwaitRoundResponse& response) {
    response = staged_;
    return absl::OkStatus();
  };
  source_.fetch = [](const v1::FetchCopiesRequest&, ScriptedSource::Bytes&) { return absl::UnimplementedError(""); };
  ExpectRefusal(Fetch(*Fetcher(), 0, 1), Reason::kTransportFailed, "for rank 7");
}

TEST_F(ShardFetcherTest, Stop_FetchesWait_EndsThemAll) {
  std::promise<void> asked;
  source_.await = [&](const v1::AwaitRoundRequest&, v1::AwaitRoundResponse&) {
    asked.set_value();
    return ScriptedSource::Hang();
  };
  const auto fetcher = Fetcher();
  // One of them asks the source, the other one waits for that.
  auto first = std::async(std::launch::async, [&] { return Fetch(*fetcher, 0, 1); });
  auto second = std::async(std::launch::async, [&] { return Fetch(*fetcher, 1, 1); });
  asked.get_future().wait();
  fetcher->Stop();
  ExpectRefusal(first.get(), Reason::kSaveCancelled, "step 40");
  ExpectRefusal(second.get(), Reason::kSaveCancelled, "step 40");
  ExpectRefusal(Fetch(*fetcher, 0, 1), Reason::kSaveCancelled, "step 40");
}

}  // namespace
}  // namespace cairn

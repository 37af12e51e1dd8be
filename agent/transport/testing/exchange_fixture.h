// Three ranks that take parts of each other's memory, with stand-ins for CUDA's driver and NCCL.
#ifndef CAIRN_AGENT_TRANSPORT_TESTING_EXCHANGE_FIXTURE_H_
#define CAIRN_AGENT_TRANSPORT_TESTING_EXCHANGE_FIXTURE_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "agent/transport/testing/exchanging_rank.h"

namespace cairn::testing {

class ExchangeFixture : public ::testing::Test {
 protected:
  static constexpr uint32_t kRanks = 3;
  static constexpr uint64_t kSourceBytes = 600'000;

  ExchangeFixture() {
    controls_ = ::testing::TempDir() + "/controls";
    setenv("STAND_IN_NCCL", controls_.c_str(), 1);
    std::ofstream(controls_) << "shared_device 1\n";
    Join(absl::Seconds(60));
  }
  ~ExchangeFixture() override {
    ranks_.clear();
    std::filesystem::remove(controls_);
  }

  // Makes the ranks anew.
  void Join(absl::Duration stall_timeout) {
    const auto absolute = [](const char* path) { return std::filesystem::absolute(path).string(); };
    WorkerProcessOptions worker;
    worker.program = absolute("gpu/share/cairn-gpu-worker");
    worker.libcuda = absolute("tests/testing/stand_in/cuda/libcairn_stand_in_cuda.so");
    worker.libnccl = absolute("tests/testing/stand_in/nccl/libcairn_stand_in_nccl.so");
    ranks_.clear();
    ranks_ = JoinRanks(kRanks, worker, {.source_bytes = kSourceBytes, .stall_timeout = stall_timeout});
  }
  void Set(const std::string& setting) { std::ofstream(controls_, std::ios::app) << setting << "\n"; }
  PeerMap Peers() const {
    PeerMap peers;
    for (uint32_t rank = 0; rank < kRanks; ++rank) peers[rank] = ranks_[rank]->peer();
    return peers;
  }
  void Start() {
    for (auto& rank : ranks_) ASSERT_TRUE(rank->Start().ok());
  }
  // Lets all trainers take what comes, and compares it with what the copies say.
  void ExpectAllArrives(const std::vector<std::vector<v1::Copy>>& taken, uint64_t target_bytes) {
    std::vector<std::string> targets(kRanks, std::string(target_bytes, '\0')), expected = targets;
    std::vector<std::future<absl::Status>> training;
    training.reserve(kRanks);
    for (uint32_t rank = 0; rank < kRanks; ++rank) {
      training.push_back(
          std::async(std::launch::async, [&, rank] { return ranks_[rank]->Train(targets[rank].data()); }));
    }
    for (uint32_t rank = 0; rank < kRanks; ++rank) {
      const absl::Status trained = training[rank].get();
      EXPECT_TRUE(trained.ok()) << trained;
      for (const v1::Copy& copy : taken[rank]) {
        Apply(copy, ranks_[copy.source_rank()]->source(), expected[rank].data());
      }
      EXPECT_TRUE(targets[rank] == expected[rank]) << "rank " << rank << " has other bytes";
    }
  }

  std::string controls_;
  std::vector<std::unique_ptr<ExchangingRank>> ranks_;
};

}  // namespace cairn::testing

#endif  // CAIRN_AGENT_TRANSPORT_TESTING_EXCHANGE_FIXTURE_H_

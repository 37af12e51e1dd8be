// Stands for the way to a gate at another agent, without the network.
#ifndef CAIRN_AGENT_TRANSPORT_TESTING_FAR_GATE_H_
#define CAIRN_AGENT_TRANSPORT_TESTING_FAR_GATE_H_

#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "agent/transport/nccl/round_gate.h"
#include "agent/transport/round_fetcher.h"

namespace cairn::testing {

class FarGate : public RoundFetcher {
 public:
  FarGate(uint32_t rank, std::shared_ptr<RoundGate> gate) : rank_(rank), gate_(std::move(gate)) {}
  void Await(uint32_t round, uint32_t released_below, Done done) override {
    gate_->Await(rank_, round, released_below, [done](const absl::StatusOr<RoundBuffer>& opened) {
      if (opened.ok()) {
        done(SourceRound());
      } else {
        done(opened.status());
      }
    });
  }
  void Release(uint32_t released_below, Failed) override { gate_->Release(rank_, released_below); }
  absl::Status Fetch(uint32_t, std::span<const v1::Copy>, char*, uint64_t) override { return absl::OkStatus(); }
  void Cancel() override {}
  void Stop() override {}

 private:
  const uint32_t rank_;
  const std::shared_ptr<RoundGate> gate_;
};

}  // namespace cairn::testing

#endif  // CAIRN_AGENT_TRANSPORT_TESTING_FAR_GATE_H_

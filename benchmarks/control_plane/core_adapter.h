// The coordinator's core as core_benchmark drives it: one job, events in, orders out, and actions that succeed in
// memory. Whoever changes the core's interface changes this file alone.
#ifndef CAIRN_BENCHMARKS_CONTROL_PLANE_CORE_ADAPTER_H_
#define CAIRN_BENCHMARKS_CONTROL_PLANE_CORE_ADAPTER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "cairn/v1/agent_coordination_service.pb.h"

namespace cairn {

// Time stands still in it but for Pass, so no lease ends because an event took long. Not thread-safe.
class CoreUnderTest {
 public:
  explicit CoreUnderTest(int ranks);
  ~CoreUnderTest();

  // The core's own CPU time for the event, without the making of the request.
  absl::Duration Register(int rank);
  // The agent's whole state: no save if `phase` is PHASE_UNSPECIFIED.
  absl::Duration Report(int rank, v1::Phase::Value phase, int64_t step);
  // Does what the server does after an event that changed a rank's orders: puts them together and tells them.
  absl::Duration TellOrders(int rank);
  // Does what the server does a few times a second.
  absl::Duration Tick();
  // Carries out what the core asked for, until it asks for nothing. Returns the longest time that one result took it.
  absl::Duration CarryOut();
  void Pass(absl::Duration time) { now_ += time; }

  // The action of the rank's save in the orders told last.
  v1::Phase::Value ActionFor(int rank) const { return action_[static_cast<size_t>(rank)]; }

 private:
  class Core;

  absl::Time now_ = absl::UnixEpoch() + absl::Hours(1);
  const int ranks_;
  std::vector<uint64_t> sequence_;
  std::vector<v1::SaveOrder> order_;
  std::vector<v1::Phase::Value> action_;
  std::unique_ptr<Core> core_;
};

}  // namespace cairn

#endif  // CAIRN_BENCHMARKS_CONTROL_PLANE_CORE_ADAPTER_H_

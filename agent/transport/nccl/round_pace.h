// One rank's way through the rounds of an exchange over NCCL: it asks the gate that all ranks wait at.
#ifndef CAIRN_AGENT_TRANSPORT_NCCL_ROUND_PACE_H_
#define CAIRN_AGENT_TRANSPORT_NCCL_ROUND_PACE_H_

#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "agent/transport/nccl/answer_box.h"
#include "agent/transport/nccl/round_gate.h"
#include "agent/transport/round_fetcher.h"

namespace cairn {

// Await and Pass are for one thread; Cancel for any.
class RoundPace {
 public:
  // The gate is kept by this rank's own agent.
  RoundPace(uint32_t rank, std::shared_ptr<RoundGate> own) : rank_(rank), own_(std::move(own)) {}
  // It is kept by another one.
  RoundPace(uint32_t rank, std::unique_ptr<RoundFetcher> far) : rank_(rank), far_(std::move(far)) {}
  // Cancels.
  ~RoundPace();

  // Says that this rank is ready for the round, and blocks until all ranks are.
  // CANCELLED (INTERRUPTED) after Cancel; UNAVAILABLE (TRANSPORT_FAILED) names the rank whose agent keeps the gate and
  // cannot be reached.
  // DEADLINE_EXCEEDED (TIMED_OUT): not all are within the time.
  absl::Status Await(uint32_t round, absl::Duration timeout = absl::InfiniteDuration());
  // Says that this rank holds up nobody below this round. Does not wait.
  void Pass(uint32_t below);
  void Cancel();

 private:
  struct Open {};

  const uint32_t rank_;
  const std::shared_ptr<RoundGate> own_;
  const std::unique_ptr<RoundFetcher> far_;
  // The gate's answers may come after this object's end.
  const std::shared_ptr<AnswerBox<Open>> answers_ = std::make_shared<AnswerBox<Open>>();
};

}  // namespace cairn

#endif  // CAIRN_AGENT_TRANSPORT_NCCL_ROUND_PACE_H_

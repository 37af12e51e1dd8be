// Puts what a rank sends and receives in an exchange into steps. Transfers are known by (round, window), and each rank
// goes through its own steps in ascending (round, window), with all its transfers of one such pair in one group call.
//
// No circle of ranks can wait for each other: among the steps that are not finished, take the smallest. Every rank in
// it has finished all its smaller steps, so each of them has reached this one, or will without waiting for anybody. A
// broadcast is in a step of every rank, so the same holds of it.
//
// If the bytes come from storage, a rank's round stands in one of two buffers only after it was read, and it is read
// only after all have released the round before the last one. So a rank goes through a round in this order: it waits
// until its own round stands, if others take of it; then until all ranks are ready for the round (RoundGate); then it
// takes its steps; then it releases the round for those that took of it here. Others that map the buffer release it
// without waiting for an exchange. Again there is no circle: take the smallest round that some rank has not finished.
// All ranks have finished those below it, so whatever they held of the buffers is released, all sources read this
// round, and all ranks come to the gate. And a rank that waits in a step never waits for storage.
#ifndef CAIRN_GPU_NCCL_EXCHANGE_SCHEDULE_H_
#define CAIRN_GPU_NCCL_EXCHANGE_SCHEDULE_H_

#include <cstddef>
#include <cstdint>
#include <vector>

namespace cairn {

// One window that goes from one rank to another. Each (peer, direction, round, window) stands once at most.
struct ExchangeTransfer {
  uint32_t peer = 0;
  bool send = false;
  uint32_t round = 0;
  uint32_t window = 0;
  uint64_t bytes = 0;
  // The caller's own number for the transfer.
  size_t index = 0;
  // All ranks of the group have it, in the same step: `peer` is the rank that sends, also at that rank itself.
  bool broadcast = false;
};

struct ExchangeStep {
  uint32_t round = 0;
  uint32_t window = 0;
  // First the broadcasts, by peer: NCCL demands that all ranks have them in one order. Then the others, by (peer,
  // send).
  std::vector<ExchangeTransfer> transfers;

  uint64_t bytes(bool send) const;
};

// The steps of one rank, in their order. Transfers without bytes are left out.
std::vector<ExchangeStep> MakeSchedule(const std::vector<ExchangeTransfer>& transfers);

// Says what a rank does in one round.
struct ExchangeRound {
  uint32_t round = 0;
  // Others take of this rank's round, though perhaps no byte.
  bool lends = false;
  std::vector<ExchangeStep> steps;
};

// The rounds of one rank in which it sends or receives, in their order.
std::vector<ExchangeRound> MakeCourse(const std::vector<ExchangeTransfer>& transfers);

}  // namespace cairn

#endif  // CAIRN_GPU_NCCL_EXCHANGE_SCHEDULE_H_

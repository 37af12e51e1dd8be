// Orders the transfers of a rank in an exchange into steps. A transfer has a round and a window. A step is one NCCL
// group call with all transfers of this rank that have the same (round, window). A rank executes its steps by ascending
// (round, window).
//
// Why ranks cannot deadlock: take the smallest step that is not finished. Each rank in it has finished all its smaller
// steps. So each of them has reached this step, or will reach it without waiting for another rank. A broadcast is in a
// step of every rank, so the same is true for it.
//
// If the bytes come from storage, each rank has two buffers, which hold its rounds in turn. Round r is read into a
// buffer after all users of round r - 2 have released it. In a round, a rank first waits until its own buffer is read,
// if other ranks take bytes from it. Then it waits until all ranks are ready for the round (RoundGate). Then it
// executes its steps. Then it releases the round for the ranks that received from it over NCCL. Ranks that map the
// buffer release it themselves, without waiting for an exchange. Again there is no deadlock: take the smallest round
// that some rank has not finished. All ranks have finished the rounds below it, so the buffers for this round are
// released, all sources read it, and all ranks reach the gate. A rank that waits in a step never waits for storage.
#ifndef CAIRN_GPU_NCCL_EXCHANGE_SCHEDULE_H_
#define CAIRN_GPU_NCCL_EXCHANGE_SCHEDULE_H_

#include <cstddef>
#include <cstdint>
#include <vector>

namespace cairn {

// One window that one rank sends to another. There is at most one transfer for each (peer, direction, round, window).
struct ExchangeTransfer {
  uint32_t peer = 0;
  bool send = false;
  uint32_t round = 0;
  uint32_t window = 0;
  uint64_t bytes = 0;
  // The caller's own number for the transfer.
  size_t index = 0;
  // True: all ranks of the group have this transfer, in the same step. `peer` is the sending rank, also on itself.
  bool broadcast = false;
};

struct ExchangeStep {
  uint32_t round = 0;
  uint32_t window = 0;
  // First the broadcasts, by peer, because NCCL requires the same order on all ranks. Then the others, by (peer, send).
  std::vector<ExchangeTransfer> transfers;

  uint64_t bytes(bool send) const;
};

// Returns the steps of one rank, in order. Transfers of 0 bytes are omitted.
std::vector<ExchangeStep> MakeSchedule(const std::vector<ExchangeTransfer>& transfers);

// The steps of a rank in one round.
struct ExchangeRound {
  uint32_t round = 0;
  // True if this rank has transfers to other ranks in this round, even if they all have 0 bytes.
  bool lends = false;
  std::vector<ExchangeStep> steps;
};

// Returns the rounds in which one rank sends or receives, in order.
std::vector<ExchangeRound> MakeCourse(const std::vector<ExchangeTransfer>& transfers);

}  // namespace cairn

#endif  // CAIRN_GPU_NCCL_EXCHANGE_SCHEDULE_H_

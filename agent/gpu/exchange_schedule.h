// Puts what a rank sends and receives in an exchange into steps. Transfers are known by (round, window), and each rank
// goes through its own steps in ascending (round, window), with all its transfers of one such pair in one group call.
//
// No circle of ranks can wait for each other: among the steps that are not finished, take the smallest. Every rank in
// it has finished all its smaller steps, so each of them has reached this one, or will without waiting for anybody.
#ifndef CAIRN_AGENT_GPU_EXCHANGE_SCHEDULE_H_
#define CAIRN_AGENT_GPU_EXCHANGE_SCHEDULE_H_

#include <cstddef>
#include <cstdint>
#include <vector>

namespace cairn {

// One window that goes from one rank to another. At most one stands for each (peer, direction, round, window).
struct ExchangeTransfer {
  uint32_t peer = 0;
  bool send = false;
  uint32_t round = 0;
  uint32_t window = 0;
  uint64_t bytes = 0;
  // What the caller knows the transfer by.
  size_t index = 0;
};

struct ExchangeStep {
  uint32_t round = 0;
  uint32_t window = 0;
  std::vector<ExchangeTransfer> transfers;  // by (peer, send)

  uint64_t bytes(bool send) const;
};

// The steps of one rank, in their order. Transfers without bytes are left out.
std::vector<ExchangeStep> MakeSchedule(const std::vector<ExchangeTransfer>& transfers);

}  // namespace cairn

#endif  // CAIRN_AGENT_GPU_EXCHANGE_SCHEDULE_H_

// Keys in the metadata of an error of an exchange over NCCL. They say which rank is at fault; "ranks" names the ranks.
#ifndef CAIRN_COMMON_RPC_EXCHANGE_FAULT_H_
#define CAIRN_COMMON_RPC_EXCHANGE_FAULT_H_

#include <string_view>

namespace cairn {

// The rank's own worker has ended or does not answer, so no other rank is at fault.
inline constexpr std::string_view kWorkerAtFault = "worker_at_fault";
// A step of the exchange has made no progress. The error's "ranks" are then all ranks that the step waits for; most of
// these only wait for others.
inline constexpr std::string_view kStepStalled = "step_stalled";

}  // namespace cairn

#endif  // CAIRN_COMMON_RPC_EXCHANGE_FAULT_H_

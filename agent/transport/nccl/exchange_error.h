// Says whom a failed step of an exchange over NCCL is about.
#ifndef CAIRN_AGENT_TRANSPORT_NCCL_EXCHANGE_ERROR_H_
#define CAIRN_AGENT_TRANSPORT_NCCL_EXCHANGE_ERROR_H_

#include <cstdint>
#include <set>
#include <string_view>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace cairn {

// Returns UNAVAILABLE (TRANSPORT_FAILED) for what WorkerProcess::AwaitStep has returned. Its metadata "ranks" names the
// peers if they have made no progress within `stall_timeout`, and this rank if its own worker is at fault. It names
// nobody if NCCL has failed: NCCL does not say for sure which of its ranks is to be looked at.
//
// `window` names what was moved, for example "window 3 of round 2"; `peers` are the ranks with which it was.
absl::Status ExchangeStepError(const absl::Status& error, std::string_view window, const std::set<uint32_t>& peers,
                               uint32_t own_rank, absl::Duration stall_timeout);

}  // namespace cairn

#endif  // CAIRN_AGENT_TRANSPORT_NCCL_EXCHANGE_ERROR_H_

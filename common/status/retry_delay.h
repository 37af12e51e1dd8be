// Says when a refused call may be made again: by google.rpc.RetryInfo beside the reason of an error.
#ifndef CAIRN_COMMON_STATUS_RETRY_DELAY_H_
#define CAIRN_COMMON_STATUS_RETRY_DELAY_H_

#include <optional>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace cairn {

// The same error, whose reader is to wait for `delay` before it calls again. A negative delay counts as none.
absl::Status WithRetryDelay(absl::Status error, absl::Duration delay);

// The delay that the error names; nothing if it names none. It comes from the wire and may be of any length.
std::optional<absl::Duration> RetryDelayOf(const absl::Status& error);

}  // namespace cairn

#endif  // CAIRN_COMMON_STATUS_RETRY_DELAY_H_

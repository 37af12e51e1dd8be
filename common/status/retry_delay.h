// Tells the caller of a refused call when to call again: by google.rpc.RetryInfo in the error.
#ifndef CAIRN_COMMON_STATUS_RETRY_DELAY_H_
#define CAIRN_COMMON_STATUS_RETRY_DELAY_H_

#include <optional>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace cairn {

// Returns the same error with the time to wait before the next call. A negative delay counts as 0.
absl::Status WithRetryDelay(absl::Status error, absl::Duration delay);

// Returns the delay of the error; nothing if it has none. The delay comes from the wire, so it may have any value.
std::optional<absl::Duration> RetryDelayOf(const absl::Status& error);

}  // namespace cairn

#endif  // CAIRN_COMMON_STATUS_RETRY_DELAY_H_

// Writes durations for people, in messages.
#ifndef CAIRN_COMMON_BASE_DURATION_TEXT_H_
#define CAIRN_COMMON_BASE_DURATION_TEXT_H_

#include <string>

#include "absl/time/time.h"

namespace cairn {

// Returns "5s", "2.5s", "1m30s" or "250ms", rounded to whole seconds from 10 s on, tenths from 1 s on, else
// milliseconds.
std::string DurationText(absl::Duration duration);

}  // namespace cairn

#endif  // CAIRN_COMMON_BASE_DURATION_TEXT_H_

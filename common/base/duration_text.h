// Writes durations for people, in messages.
#ifndef CAIRN_COMMON_BASE_DURATION_TEXT_H_
#define CAIRN_COMMON_BASE_DURATION_TEXT_H_

#include <string>

#include "absl/time/time.h"

namespace cairn {

// Returns for example "5s", "2.5s", "1m30s" or "250ms". The result is rounded: to whole seconds from 10 s on, to tenths
// from 1 s on, else to milliseconds.
std::string DurationText(absl::Duration duration);

}  // namespace cairn

#endif  // CAIRN_COMMON_BASE_DURATION_TEXT_H_

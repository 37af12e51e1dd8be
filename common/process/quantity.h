// Reads and writes durations and sizes as people write them on a command line.
#ifndef CAIRN_COMMON_PROCESS_QUANTITY_H_
#define CAIRN_COMMON_PROCESS_QUANTITY_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace cairn {

// Reads Go's form: "90s", "10m", "1h30m", "250ms". INVALID_ARGUMENT (BAD_QUANTITY): the text is no such duration, or
// the duration is negative or infinite.
absl::StatusOr<absl::Duration> ParseDuration(std::string_view text);
// Does the same for the value of a flag, which the error names.
absl::StatusOr<absl::Duration> ParseDurationOf(std::string_view flag, std::string_view text);

// Reads a number, with or without a fraction, and a unit: B, KiB, MiB, GiB, TiB, KB, MB, GB or TB. A number without a
// unit counts bytes. INVALID_ARGUMENT (BAD_QUANTITY): the text is no such size, or the size is more than 2^63 - 1
// bytes.
absl::StatusOr<int64_t> ParseSize(std::string_view text);

// Writes three significant digits: "1.5 GiB", "312 B".
std::string FormatSize(int64_t bytes);

}  // namespace cairn

#endif  // CAIRN_COMMON_PROCESS_QUANTITY_H_

// The file that holds a job's retention policy: one line, "retention/1 keep-last N keep-every M", with " keep-best
// METRIC:min" or " keep-best METRIC:max" behind it if there is such a rule.
#ifndef CAIRN_STORE_WRITE_RETENTION_FILE_H_
#define CAIRN_STORE_WRITE_RETENTION_FILE_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "store/write/prune_policy.h"

namespace cairn {

// Larger files are not read.
inline constexpr uint64_t kMaxRetentionBytes = 4096;

std::string EncodeRetention(const PrunePolicy& policy);
// DATA_LOSS (RETENTION_UNREADABLE): the text is not exactly what EncodeRetention makes of a policy with a rule. It
// never guesses: a wrong rule would delete what the right one keeps.
absl::StatusOr<PrunePolicy> DecodeRetention(std::string_view text);

}  // namespace cairn

#endif  // CAIRN_STORE_WRITE_RETENTION_FILE_H_

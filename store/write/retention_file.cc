#include "store/write/retention_file.h"

#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/status/reason.h"

namespace cairn {

std::string EncodeRetention(const PrunePolicy& policy) {
  return absl::StrCat("retention/1 keep-last ", policy.keep_last, " keep-every ", policy.keep_every,
                      policy.keep_best.has_value() ? absl::StrCat(" keep-best ", ToString(*policy.keep_best)) : "",
                      "\n");
}

absl::StatusOr<PrunePolicy> DecodeRetention(std::string_view text) {
  const std::string line(text);
  const std::vector<std::string> words = absl::StrSplit(line, absl::ByAnyChar(" \n"));
  PrunePolicy policy;
  if (words.size() > 6) {
    // If the text is no rule, the encoded policy below differs from the line, which is an error.
    if (const auto best = ParseBestRule(words[6]); best.ok()) policy.keep_best = *best;
  }
  if (words.size() > 4 && absl::SimpleAtoi(words[2], &policy.keep_last) &&
      absl::SimpleAtoi(words[4], &policy.keep_every) && policy.keep_last >= 0 && policy.keep_every >= 0 &&
      !policy.empty() && EncodeRetention(policy) == line) {
    return policy;
  }
  return MakeError(Reason::kRetentionUnreadable, "the job's retention policy cannot be read");
}

}  // namespace cairn

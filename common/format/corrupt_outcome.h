// Makes the error for an outcome that cannot be read.
#ifndef CAIRN_COMMON_FORMAT_CORRUPT_OUTCOME_H_
#define CAIRN_COMMON_FORMAT_CORRUPT_OUTCOME_H_

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/status/reason.h"

namespace cairn {

// DATA_LOSS (MANIFEST_CORRUPT). `what` says which part of the outcome is wrong.
inline absl::Status CorruptOutcome(absl::string_view what) {
  return MakeError(Reason::kManifestCorrupt, absl::StrCat("corrupt outcome: ", what));
}

}  // namespace cairn

#endif  // CAIRN_COMMON_FORMAT_CORRUPT_OUTCOME_H_

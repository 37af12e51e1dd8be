// The error of a verdict that cannot be read.
#ifndef CAIRN_COMMON_FORMAT_CORRUPT_VERDICT_H_
#define CAIRN_COMMON_FORMAT_CORRUPT_VERDICT_H_

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/status/reason.h"

namespace cairn {

// DATA_LOSS (MANIFEST_CORRUPT). `what` says which part of the verdict is wrong.
inline absl::Status CorruptVerdict(absl::string_view what) {
  return MakeError(Reason::kManifestCorrupt, absl::StrCat("corrupt verdict: ", what));
}

}  // namespace cairn

#endif  // CAIRN_COMMON_FORMAT_CORRUPT_VERDICT_H_

// Reads which ranks an error names.
#ifndef CAIRN_COMMON_STATUS_NAMED_RANKS_H_
#define CAIRN_COMMON_STATUS_NAMED_RANKS_H_

#include <vector>

#include "absl/status/status.h"

namespace cairn {

// Returns the ranks in the metadata "ranks", for example "0, 3", in the same order; empty if there are none. The error
// may come from the wire, so reading stops at the first entry that is no rank.
std::vector<int> RanksNamedIn(const absl::Status& error);

}  // namespace cairn

#endif  // CAIRN_COMMON_STATUS_NAMED_RANKS_H_

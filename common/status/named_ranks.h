// Reads which ranks an error is about.
#ifndef CAIRN_COMMON_STATUS_NAMED_RANKS_H_
#define CAIRN_COMMON_STATUS_NAMED_RANKS_H_

#include <vector>

#include "absl/status/status.h"

namespace cairn {

// Returns the ranks of the metadata "ranks", for example "0, 3", in its order. It reads as far as they are ranks: the
// error may come from the wire. Empty if there are none.
std::vector<int> RanksNamedIn(const absl::Status& error);

}  // namespace cairn

#endif  // CAIRN_COMMON_STATUS_NAMED_RANKS_H_

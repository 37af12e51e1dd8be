// The type of a function that reads a range of a file.
#ifndef CAIRN_FOREIGN_READ_PICKLE_READ_RANGE_H_
#define CAIRN_FOREIGN_READ_PICKLE_READ_RANGE_H_

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/statusor.h"

namespace cairn {

// A function that reads exactly `bytes` bytes at `offset` of a file, or of a part of a file. The caller only asks for
// ranges that lie within it.
using ReadRange = std::function<absl::StatusOr<std::string>(uint64_t offset, uint64_t bytes)>;

}  // namespace cairn

#endif  // CAIRN_FOREIGN_READ_PICKLE_READ_RANGE_H_

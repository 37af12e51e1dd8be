// Reads Python's pickle format as data. It is no interpreter: it imports nothing and calls nothing.
//
// Format: CPython's Lib/pickletools.py describes every opcode.
#ifndef CAIRN_FOREIGN_READ_PICKLE_PICKLE_H_
#define CAIRN_FOREIGN_READ_PICKLE_PICKLE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "foreign/read/pickle/pickle_document.h"

namespace cairn {

struct PickleLimits {
  // The most memory for the tables of the document. The input is not copied and does not count.
  uint64_t memory_bytes = uint64_t{256} << 20;
};

// Reads a pickle of protocol 2 to 5 from the begin of `bytes`, which are untrusted; bytes behind its end are left
// alone. Time and memory are linear in its length, and nothing in it is called, imported or looked up. `what` names it
// in errors. DATA_LOSS (BAD_FOREIGN_FILE): it is cut off or contradicts itself. UNIMPLEMENTED (UNSUPPORTED): it has an
// opcode that needs data outside of the pickle, or that only protocols 0 and 1 have. RESOURCE_EXHAUSTED (MEMORY_LIMIT):
// it needs more than the limits allow.
absl::StatusOr<PickleDocument> ReadPickle(std::string_view bytes, const std::string& what, const PickleLimits& limits);

// A function that gets the number of bytes at the begin of the input that will not be read again.
using ReleasePickle = std::function<void(size_t consumed)>;
// Does the same for a pickle whose bytes nobody needs afterwards: the document keeps its own copies of the texts in it,
// and `release` is called every few megabytes, so that the input may shrink while the document grows.
absl::StatusOr<PickleDocument> ConsumePickle(std::string_view bytes, const std::string& what,
                                             const PickleLimits& limits, const ReleasePickle& release);

}  // namespace cairn

#endif  // CAIRN_FOREIGN_READ_PICKLE_PICKLE_H_

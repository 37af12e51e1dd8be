// Reads a pickle without its byte strings. Some programs keep the arrays of a checkpoint inside of one pickle, which
// may be larger than memory; the rest of it is small.
#ifndef CAIRN_FOREIGN_READ_PICKLE_PICKLE_OUTLINE_H_
#define CAIRN_FOREIGN_READ_PICKLE_PICKLE_OUTLINE_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "foreign/read/pickle/pickle_document.h"
#include "foreign/read/pickle/read_range.h"

namespace cairn {

// Says where the contents of a byte string lie.
struct PickledBytes {
  uint64_t offset = 0;  // in the file
  uint64_t bytes = 0;
};

// Copies the pickle at the begin of a file of `bytes` bytes, which is untrusted, up to its end. In place of every byte
// string the copy has a persistent value, from which PlaceOfBytes tells where its contents lie; they are not read.
// `most` is how long the copy may be. `what` names the file in errors. DATA_LOSS (BAD_FOREIGN_FILE): it is cut off.
// UNIMPLEMENTED (UNSUPPORTED): it has persistent values of its own, or an opcode that ReadPickle refuses.
// RESOURCE_EXHAUSTED (MEMORY_LIMIT): the copy would be too long. Also fails as `read` does.
absl::StatusOr<std::string> OutlinePickle(uint64_t bytes, const ReadRange& read, const std::string& what,
                                          uint64_t most);

// `document` was read from such a copy. Returns nothing if `value` is no byte string.
std::optional<PickledBytes> PlaceOfBytes(const PickleDocument& document, PickleValue value);

}  // namespace cairn

#endif  // CAIRN_FOREIGN_READ_PICKLE_PICKLE_OUTLINE_H_

// Reads a pickle without its byte strings. Some programs keep the arrays of a checkpoint as byte strings in one pickle,
// which may be larger than memory; without them it is small.
#ifndef CAIRN_FOREIGN_READ_PICKLE_PICKLE_OUTLINE_H_
#define CAIRN_FOREIGN_READ_PICKLE_PICKLE_OUTLINE_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "foreign/read/pickle/pickle_document.h"
#include "foreign/read/pickle/read_range.h"

namespace cairn {

struct PickledBytes {
  uint64_t offset = 0;  // in the file
  uint64_t bytes = 0;
};

// Copies the pickle at the begin of a file of `bytes` bytes, which is untrusted, up to its end. Contents of byte
// strings are not read: in place of every byte string the copy has a persistent value, which PlaceOfBytes decodes.
// `most` is the largest length of the copy in bytes. `what` names the file in errors. DATA_LOSS (BAD_FOREIGN_FILE): it
// is cut off. UNIMPLEMENTED (UNSUPPORTED): it has persistent values of its own, or an opcode that ReadPickle refuses.
// RESOURCE_EXHAUSTED (MEMORY_LIMIT): the copy would be too long. Also fails as `read` does.
absl::StatusOr<std::string> OutlinePickle(uint64_t bytes, const ReadRange& read, const std::string& what,
                                          uint64_t most);

// Returns the place of a byte string; nothing for another value. `document` was read from a copy of OutlinePickle.
std::optional<PickledBytes> PlaceOfBytes(const PickleDocument& document, PickleValue value);

}  // namespace cairn

#endif  // CAIRN_FOREIGN_READ_PICKLE_PICKLE_OUTLINE_H_

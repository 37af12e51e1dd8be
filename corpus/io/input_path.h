// Small inputs, and the directories that they are in: on this machine or in an object store.
#ifndef CAIRN_CORPUS_IO_INPUT_PATH_H_
#define CAIRN_CORPUS_IO_INPUT_PATH_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace cairn::corpus {

// An error counts as no, in both: whoever opens the file is told of it.
bool IsInputDirectory(const std::string& path);
bool InputStands(const std::string& path);

// Returns the paths of all that is in a directory. INPUT_UNREADABLE: it cannot be listed. Else fails as
// ObjectStores::List.
absl::StatusOr<std::vector<std::string>> InputsIn(const std::string& directory);

// Reads all of an input as it is. INPUT_UNREADABLE: it cannot be read, or an object has more than 1 GiB. Else fails as
// ObjectStores::Open.
absl::StatusOr<std::string> ReadInput(const std::string& path);

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_IO_INPUT_PATH_H_

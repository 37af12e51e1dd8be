// Lists the files that a directory stands for where inputs are named, and tells how large inputs are.
#ifndef CAIRN_CORPUS_IO_FILES_BELOW_H_
#define CAIRN_CORPUS_IO_FILES_BELOW_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace cairn::corpus {

// Sorts paths by name without the ending of a compression, so that their order stays the same when files are
// compressed.
void SortByName(std::vector<std::string>& paths);

// Returns all regular files below a directory except hidden ones, in the order of SortByName. INPUT_UNREADABLE: there
// is none, or the directory cannot be listed.
absl::StatusOr<std::vector<std::string>> FilesBelow(const std::string& directory);

// Returns how many bytes the files and objects have on disk, for progress. Those that cannot be looked at have none.
uint64_t BytesOf(const std::vector<std::string>& paths);

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_IO_FILES_BELOW_H_

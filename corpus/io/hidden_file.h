// The hidden files beside an output, in which it is written until it is whole. Whoever writes one holds a lock of it
// (flock), so the next run for the same output can tell, and remove, what a killed run has left.
#ifndef CAIRN_CORPUS_IO_HIDDEN_FILE_H_
#define CAIRN_CORPUS_IO_HIDDEN_FILE_H_

#include <string>
#include <string_view>

#include "absl/functional/function_ref.h"

namespace cairn::corpus {

// Returns a token that no other run has.
std::string FreshHiddenToken();

// Returns the name of a run's hidden file beside `path`: "DIRECTORY/.NAME.TOKEN.partial".
std::string HiddenName(const std::string& path, std::string_view token);

// Locks a hidden file or directory that was just made, until `fd` and all copies of it are closed. Returns false if
// somebody has taken it for one that was left, and removed it: then the caller makes another one. Where the file system
// has no locks, it returns true, and nobody removes what is left.
bool LockHidden(int fd);

// Removes the hidden files that killed runs have left for the output `path`, and for those beside it whose names
// `is_part` takes. A run's hidden file of `path` itself stands for all files of the run. What cannot be removed stays.
void RemoveLeftHidden(const std::string& path, absl::FunctionRef<bool(std::string_view name)> is_part);

// Does the same for directories in `parent` whose names are `prefix` and a token, or the number of a process.
void RemoveLeftDirectories(const std::string& parent, std::string_view prefix);

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_IO_HIDDEN_FILE_H_

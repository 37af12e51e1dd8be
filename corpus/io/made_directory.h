// The directory of an output, which is made if it is missing and goes again if nothing comes to stand in it.
#ifndef CAIRN_CORPUS_IO_MADE_DIRECTORY_H_
#define CAIRN_CORPUS_IO_MADE_DIRECTORY_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

namespace cairn::corpus {

// Holds the directories that it has made. The destructor removes those in which nothing stands, so a command that fails
// before its output is there leaves none. It must be the last to go of what writes there.
class MadeDirectory {
 public:
  // Makes the directory of the output `path` and those above it, as far as they are missing; an object needs none.
  // NO_SPACE, STORAGE_READ_ONLY, STORAGE_ERROR: also the path is an address of no store that is known.
  static absl::StatusOr<MadeDirectory> Of(const std::string& path);
  MadeDirectory() = default;
  ~MadeDirectory();
  MadeDirectory(MadeDirectory&& other) noexcept : made_(std::exchange(other.made_, {})) {}
  MadeDirectory& operator=(MadeDirectory&& other) noexcept {
    made_.swap(other.made_);  // what this one has made goes with the other
    return *this;
  }

 private:
  std::vector<std::string> made_;  // those above first
};

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_IO_MADE_DIRECTORY_H_

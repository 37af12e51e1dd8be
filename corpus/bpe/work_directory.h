// The directory in which a training keeps what does not fit in memory, and what a later run goes on from.
#ifndef CAIRN_CORPUS_BPE_WORK_DIRECTORY_H_
#define CAIRN_CORPUS_BPE_WORK_DIRECTORY_H_

#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "common/file/unique_fd.h"
#include "corpus/io/made_directory.h"

namespace cairn::corpus {

// Only one run has a directory at a time. The destructor removes it with all that is in it; if a later run is to resume
// from it, only if it is empty.
class WorkDirectory {
 public:
  // Makes the directory, and those above it, as far as they are missing. BAD_REQUEST: another run, which is alive, has
  // it (`resume`). STORAGE_ERROR, STORAGE_READ_ONLY, NO_SPACE.
  static absl::StatusOr<std::unique_ptr<WorkDirectory>> Open(const std::string& path, bool resume);
  ~WorkDirectory();
  WorkDirectory(const WorkDirectory&) = delete;
  WorkDirectory& operator=(const WorkDirectory&) = delete;

  // Says that nothing is left to resume.
  void Finished() { keep_ = false; }

 private:
  WorkDirectory(std::string path, MadeDirectory above, UniqueFd held, bool keep)
      : path_(std::move(path)), above_(std::move(above)), held_(std::move(held)), keep_(keep) {}

  const std::string path_;
  const MadeDirectory above_;
  const UniqueFd held_;  // so others see that it is not one that was left
  bool keep_;
};

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_BPE_WORK_DIRECTORY_H_

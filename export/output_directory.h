// A directory that an export fills: its files get their names when all of them are durable.
#ifndef CAIRN_EXPORT_OUTPUT_DIRECTORY_H_
#define CAIRN_EXPORT_OUTPUT_DIRECTORY_H_

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/file/unique_fd.h"

namespace cairn {

// Nothing of the files is left behind unless Publish has succeeded. Not thread-safe.
class OutputDirectory {
 public:
  explicit OutputDirectory(std::string path) : path_(std::move(path)) {}
  ~OutputDirectory();
  OutputDirectory(const OutputDirectory&) = delete;
  OutputDirectory& operator=(const OutputDirectory&) = delete;

  // Makes the directory if it is not there, but not those above it. Until this object is gone, no other export can open
  // the directory, where its file system has locks; and what a killed export has left there is removed. ALREADY_EXISTS
  // (OUTPUT_EXISTS): the directory holds a file of a checkpoint of any library, or one for whose name `is_output`
  // returns true; or another export fills it.
  absl::Status Open(const std::function<bool(std::string_view name)>& is_output);

  // Makes a new file under a temporary name, and reserves its room. RESOURCE_EXHAUSTED (NO_SPACE).
  absl::StatusOr<UniqueFd> Create(const std::string& name, uint64_t bytes);
  absl::Status Write(int fd, const std::string& name, uint64_t offset, std::string_view bytes);
  absl::Status Sync(int fd, const std::string& name);
  // The three together, for a small file.
  absl::Status Add(const std::string& name, std::string_view bytes);
  // Makes a new file that has what the file at `source` has.
  absl::Status Copy(const std::string& name, const std::string& source);

  // Gives the files their names, in the order in which they were created. The last one gets its name when those of all
  // others are durable. ALREADY_EXISTS (OUTPUT_EXISTS): a name has come to be taken meanwhile.
  absl::Status Publish();

 private:
  std::string PathOf(const std::string& name) const;
  absl::Status Lock();
  absl::Status SyncDirectory();

  const std::string path_;
  UniqueFd fd_;
  bool locked_ = false;
  bool made_directory_ = false;
  bool done_ = false;
  std::vector<std::pair<std::string, std::string>> files_;  // temporary and final names, not published yet
  std::vector<std::string> published_;
};

}  // namespace cairn

#endif  // CAIRN_EXPORT_OUTPUT_DIRECTORY_H_

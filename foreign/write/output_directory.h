// A directory that an export fills: its files get their names when all of them are durable. An export that was broken
// off goes on where it was, because a finished file stays under a temporary name that says which export it is of, and
// which bytes it has.
#ifndef CAIRN_FOREIGN_WRITE_OUTPUT_DIRECTORY_H_
#define CAIRN_FOREIGN_WRITE_OUTPUT_DIRECTORY_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/file/confined_directory.h"
#include "common/file/unique_fd.h"

namespace cairn {

// Nothing of the files is left behind unless Publish has succeeded or Abandon says so. Not thread-safe.
class OutputDirectory {
 public:
  // `identity` is hexadecimal. Two exports have the same one only if they write the same bytes into files of the same
  // name; see export_identity.h.
  OutputDirectory(std::string path, std::string identity) : path_(std::move(path)), identity_(std::move(identity)) {}
  ~OutputDirectory();
  OutputDirectory(const OutputDirectory&) = delete;
  OutputDirectory& operator=(const OutputDirectory&) = delete;

  // Makes the directory if it is not there, but not those above it. Until this object is gone, no other export can open
  // the directory, where its file system has locks; and what another export has left there is removed. ALREADY_EXISTS
  // (OUTPUT_EXISTS): the directory holds a file of a checkpoint of any library, or one for whose name `is_output`
  // returns true; or another export fills it. Then nothing is removed that an export could go on with.
  absl::Status Open(const std::function<bool(std::string_view name)>& is_output);

  // Returns true if an earlier export of this identity has finished the file, with so many bytes. It needs not be
  // created then. All of it is read: one whose bytes are not those that were written is removed. CANCELLED
  // (INTERRUPTED): `interrupted`, which may be null, returned true. ALREADY_EXISTS (OUTPUT_EXISTS): such a file has its
  // final name too.
  absl::StatusOr<bool> TakeFinished(const std::string& name, uint64_t bytes, const std::function<bool()>& interrupted);
  // Makes a new file under a temporary name, and reserves its room. RESOURCE_EXHAUSTED (NO_SPACE).
  absl::StatusOr<UniqueFd> Create(const std::string& name, uint64_t bytes);
  // If direct I/O has begun for the file (direct_io.h), all numbers are multiples of kIoAlignment. Thread-safe.
  absl::Status Write(int fd, const std::string& name, uint64_t offset, std::string_view bytes) const;
  // Makes all of the file durable. From now on another export of this identity may take it over. `crc32c` is of the
  // bytes that it was given.
  absl::Status Finish(int fd, const std::string& name, uint32_t crc32c);
  // Makes a small file, or takes it over if an earlier export has made the same one. ALREADY_EXISTS (OUTPUT_EXISTS): it
  // made another one, which has its final name.
  absl::Status Add(const std::string& name, std::string_view bytes);
  // Makes such a file, which has what the file at `source` has.
  absl::Status Copy(const std::string& name, const std::string& source);

  // Gives the files their names, in the order in which they were created. The last one gets its name when those of all
  // others are durable. ALREADY_EXISTS (OUTPUT_EXISTS): a name has come to be taken meanwhile. UNAVAILABLE
  // (STORAGE_ERROR): all is complete, and a temporary name cannot be removed.
  absl::Status Publish();
  // The export has failed. If the same command may succeed later, finished files stay, and the returned error says so.
  absl::Status Abandon(const absl::Status& error);

 private:
  struct File {
    std::string temporary;
    std::string name;
    bool finished = false;
  };
  // A file of an earlier export.
  struct Found {
    std::string temporary;
    uint64_t bytes = 0;
    uint32_t crc32c = 0;
  };

  std::string PathOf(const std::string& name) const;
  // Keeps in mind the files that may be taken over; returns the other temporary names.
  std::vector<std::string> FindFinished(const std::vector<std::string>& temporaries);
  // Removes what an export has left that was killed when it was complete.
  void RemoveSecondNames(const std::vector<std::string>& temporaries);
  // If `crc32c` is given, the file must have it.
  absl::StatusOr<bool> Take(const std::string& name, uint64_t bytes, std::optional<uint32_t> crc32c,
                            const std::function<bool()>& interrupted);
  bool IsSameFile(const std::string& one, const std::string& other) const;
  absl::Status Sync(int fd, const std::string& name);
  absl::Status Lock();
  absl::Status SyncDirectory();
  absl::Status RemoveTemporaryNames();

  const std::string path_;
  const std::string identity_;
  UniqueFd fd_;
  bool locked_ = false;
  bool made_directory_ = false;
  bool done_ = false;
  bool keep_finished_ = false;
  std::unique_ptr<ConfinedDirectory> storage_;  // the directory
  std::map<std::string, Found> found_;          // by the final name; those that nobody has taken yet
  std::vector<File> files_;                     // as they were created or taken
  std::vector<std::string> published_;
};

}  // namespace cairn

#endif  // CAIRN_FOREIGN_WRITE_OUTPUT_DIRECTORY_H_

// The directory into which an export writes. Files get their names when all of them are durable. An export that was
// interrupted can be continued: each finished file stays under a temporary name, which has the identity of the export
// and a checksum of the bytes.
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
#include "common/resources/aligned_buffer.h"
#include "foreign/write/export_output.h"

namespace cairn {

class OutputDirectory : public ExportOutput {
 public:
  // `identity` is hexadecimal. Two exports have the same one only if they write the same bytes into files of the same
  // name; see export_identity.h.
  OutputDirectory(std::string path, std::string identity) : path_(std::move(path)), identity_(std::move(identity)) {}
  ~OutputDirectory() override;
  OutputDirectory(const OutputDirectory&) = delete;
  OutputDirectory& operator=(const OutputDirectory&) = delete;

  uint64_t step() const override { return kIoAlignment; }

  // Makes the directory if it is not there, but not those above it. Locks the directory against other exports until
  // this object is destroyed, if its file system has locks. Removes files that an export of another identity has left
  // there. ALREADY_EXISTS (OUTPUT_EXISTS): the directory holds a file of a checkpoint of any library, or a file for
  // whose name `is_output` returns true; or another export is writing there. Then no file is removed with which an
  // export could be continued.
  absl::Status Open(const std::function<bool(std::string_view name)>& is_output) override;

  // Returns true if an earlier export of this identity has finished the file with this length in bytes, so that it need
  // not be created. It reads the whole file, and removes the file if its checksum is wrong. CANCELLED (INTERRUPTED):
  // `interrupted`, which may be null, returned true. ALREADY_EXISTS (OUTPUT_EXISTS): the checksum is wrong, and the
  // file has its final name already.
  absl::StatusOr<bool> TakeFinished(const std::string& name, uint64_t bytes,
                                    const std::function<bool()>& interrupted) override;
  // Makes a new file with Create; it is written past the page cache where the file system lets it.
  absl::StatusOr<std::unique_ptr<OutputFile>> Begin(const std::string& name, uint64_t bytes) override;
  // Makes a new file under a temporary name, and reserves its room. RESOURCE_EXHAUSTED (NO_SPACE).
  absl::StatusOr<UniqueFd> Create(const std::string& name, uint64_t bytes);
  // If direct I/O has begun for the file (direct_io.h), all numbers are multiples of kIoAlignment. Thread-safe.
  absl::Status Write(int fd, const std::string& name, uint64_t offset, std::string_view bytes) const;
  // Makes all of the file durable. From now on a later export of this identity may take it over (TakeFinished).
  // `crc32c` is that of the bytes that Write was given.
  absl::Status Finish(int fd, const std::string& name, uint32_t crc32c);
  // Makes a small file, or takes it over if an earlier export has made the same one. ALREADY_EXISTS (OUTPUT_EXISTS):
  // the earlier export has made a file with other bytes, which has its final name.
  absl::Status Add(const std::string& name, std::string_view bytes) override;
  // Does the same with the bytes of the file at `source`.
  absl::Status Copy(const std::string& name, const std::string& source) override;

  // Gives the files their names, in the order in which they were created. The last file gets its name when the names of
  // all others are durable. ALREADY_EXISTS (OUTPUT_EXISTS): somebody else has made a file of that name meanwhile.
  // UNAVAILABLE (STORAGE_ERROR): the export is complete, but a temporary name cannot be removed.
  absl::Status Publish() override;
  // Must be called when the export has failed with `error`. If the same command may succeed later, finished files stay,
  // and the returned error says so.
  absl::Status Abandon(const absl::Status& error) override;

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
  // Puts the files that may be taken over into `found_`; returns the other temporary names.
  std::vector<std::string> FindFinished(const std::vector<std::string>& temporaries);
  // Removes the temporary names of an export that was killed after its files had their final names.
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

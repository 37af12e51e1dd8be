// Shared by the readers of directories in which a pickled metadata file says which tensors lie in which file.
#ifndef CAIRN_FOREIGN_READ_SOURCE_DESCRIBED_FILES_H_
#define CAIRN_FOREIGN_READ_SOURCE_DESCRIBED_FILES_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/digest.h"
#include "common/status/status.h"
#include "foreign/read/pickle/pickle.h"
#include "foreign/read/pickle/pickle_document.h"
#include "foreign/read/source/foreign_file.h"

namespace cairn {

// The longest metadata file that is read. For comparison: one of 4096 ranks takes 212 MB.
inline constexpr uint64_t kMostMetadataBytes = uint64_t{2} << 30;

template <typename Metadata>
struct MetadataFile {
  std::string path;
  std::string digest;
  Metadata metadata;
};

// Gives the memory of the first `consumed` bytes of a text back to the kernel; nobody may look at them afterwards.
void ReleasePages(std::string& text, size_t consumed);

// Reads and parses the metadata file of a directory. Its text may take gigabytes, so its memory is given back while it
// is parsed. Fails as ForeignFile::OpenWhole and `parse` do.
template <typename Metadata>
absl::StatusOr<MetadataFile<Metadata>> ReadMetadataFile(const std::string& directory, std::string_view name,
                                                        absl::StatusOr<Metadata> (*parse)(std::string_view bytes,
                                                                                          const std::string& what,
                                                                                          const ReleasePickle&)) {
  CAIRN_ASSIGN_OR_RETURN(const ForeignFile file, ForeignFile::OpenWhole(directory, name, kMostMetadataBytes));
  CAIRN_ASSIGN_OR_RETURN(std::string text, file.Read(0, file.bytes()));
  std::string digest = Digest(text);
  CAIRN_ASSIGN_OR_RETURN(Metadata metadata,
                         parse(text, file.path(), [&](size_t consumed) { ReleasePages(text, consumed); }));
  return MetadataFile<Metadata>{file.path(), std::move(digest), std::move(metadata)};
}

// Reads a metadata file with ReadPickle or, if `release` is given, ConsumePickle. The memory limit depends on the
// file's length.
absl::StatusOr<PickleDocument> ReadPickledMetadata(std::string_view bytes, const std::string& what,
                                                   const ReleasePickle& release);

// Makes the error DATA_LOSS (BAD_FOREIGN_FILE) for the metadata file `what`. It names `tensor` unless that is empty.
absl::Status BadMetadata(const std::string& what, std::string_view problem, std::string_view tensor = "");

// Returns the entries of a dict whose keys are names of tensors or values, sorted by name. `what` names the metadata
// file in errors. DATA_LOSS (BAD_FOREIGN_FILE): a key is no text, or occurs twice. INVALID_ARGUMENT (BAD_NAME).
absl::StatusOr<std::vector<std::pair<std::string_view, PickleValue>>> ReadByName(const PickleDocument& document,
                                                                                 PickleValue dict,
                                                                                 const std::string& what);

// Numbers the files that a metadata file names, in the order in which they come.
class FileNumbers {
 public:
  // `what` names the metadata file in errors.
  FileNumbers(const PickleDocument& document, const std::string& what) : document_(document), what_(what) {}

  // Returns the number of a file. DATA_LOSS (BAD_FOREIGN_FILE): `path` is no text. INVALID_ARGUMENT (PATH_ESCAPE): it
  // leaves the directory.
  absl::StatusOr<uint32_t> Of(PickleValue path);
  std::vector<std::string> TakeNames() && { return std::move(names_); }

 private:
  const PickleDocument& document_;
  const std::string& what_;
  absl::flat_hash_map<std::string_view, uint32_t> numbers_;
  std::vector<std::string> names_;
};

// Returns where the items of each file begin in a list that is sorted by `file`, and then the list's length.
template <typename Item>
std::vector<size_t> FirstOfEachFile(const std::vector<Item>& items, size_t files) {
  std::vector<size_t> first(files + 1, 0);
  for (const Item& item : items) ++first[item.file + 1];
  for (size_t f = 0; f < files; ++f) first[f + 1] += first[f];
  return first;
}

// Calls `read` for each file, by several threads, because each read waits for storage. Returns the error of the first
// of those files that failed; not all are read then.
absl::Status ReadEachFile(size_t files, const std::function<absl::Status(size_t file)>& read);

}  // namespace cairn

#endif  // CAIRN_FOREIGN_READ_SOURCE_DESCRIBED_FILES_H_

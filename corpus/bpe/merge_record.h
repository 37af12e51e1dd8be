// Records which merges were made, so that merging can be resumed.
#ifndef CAIRN_CORPUS_BPE_MERGE_RECORD_H_
#define CAIRN_CORPUS_BPE_MERGE_RECORD_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/file/unique_fd.h"

namespace cairn::corpus {

// A file that grows by parts: a line with a checksum of all that comes before and of the part, and with the part's
// length; then a line "left right" for each merge, in the byte-level alphabet. What a kill or a power cut leaves at the
// end is no whole part, and is dropped when the file is opened again.
class MergeRecord {
 public:
  using Merges = std::vector<std::pair<std::string, std::string>>;  // the bytes of left and right, in order

  // Opens the record at `path`, or begins one if there is none or if it has another fingerprint. `fingerprint` is one
  // line; it covers all on which the merges depend. Fails as OutputError says.
  static absl::StatusOr<MergeRecord> Open(const std::string& path, const std::string& fingerprint);

  // Removes the file if there is no merge in it.
  ~MergeRecord();
  MergeRecord(MergeRecord&&) = default;
  MergeRecord& operator=(MergeRecord&&) = default;

  // Returns the merges that were there when it was opened.
  const Merges& merges() const { return merges_; }

  // Adds merges. They outlast the process, but not a power cut.
  absl::Status Append(const Merges& more);

 private:
  MergeRecord(std::string path, UniqueFd file) : path_(std::move(path)), file_(std::move(file)) {}
  // Reads the whole parts of `content`; returns their length, or 0 if it is the record of something else.
  size_t Read(std::string_view content, const std::string& fingerprint);

  std::string path_;
  UniqueFd file_;
  uint32_t crc_ = 0;  // of the whole file
  bool appended_ = false;
  Merges merges_;
};

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_BPE_MERGE_RECORD_H_

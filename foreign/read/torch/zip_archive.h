// Finds the records of an uncompressed zip archive, as torch.save writes it, within a range of a file.
//
// Format: PKWARE's APPNOTE.TXT, sections 4.3 and 4.5; PyTorch's caffe2/serialize/inline_container.cc writes it.
#ifndef CAIRN_FOREIGN_READ_TORCH_ZIP_ARCHIVE_H_
#define CAIRN_FOREIGN_READ_TORCH_ZIP_ARCHIVE_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "foreign/read/pickle/read_range.h"

namespace cairn {

struct ZipRecord {
  std::string name;     // without the archive's own directory: "data.pkl", "data/0"
  uint64_t offset = 0;  // of its bytes, counted from the archive's begin
  uint64_t bytes = 0;
};

// All records of an archive, in the order of its directory.
class ZipArchive {
 public:
  // Reads the directory of an archive of `bytes` bytes. All of it is untrusted. `what` names the archive in errors.
  // DATA_LOSS (BAD_FOREIGN_FILE): it is no archive, or a record lies outside of it. UNIMPLEMENTED (UNSUPPORTED): a
  // record is compressed. Also fails as `read` does.
  static absl::StatusOr<ZipArchive> Open(uint64_t bytes, const ReadRange& read, const std::string& what);

  const std::vector<ZipRecord>& records() const { return records_; }
  // Returns null if there is no such record.
  const ZipRecord* Find(std::string_view name) const;

 private:
  std::vector<ZipRecord> records_;
};

}  // namespace cairn

#endif  // CAIRN_FOREIGN_READ_TORCH_ZIP_ARCHIVE_H_

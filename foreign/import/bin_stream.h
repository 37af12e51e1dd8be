// Writes one bin of an attempt from beginning to end, while its data is being produced.
#ifndef CAIRN_FOREIGN_IMPORT_BIN_STREAM_H_
#define CAIRN_FOREIGN_IMPORT_BIN_STREAM_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cairn/v1/agent_coordination_service.pb.h"
#include "common/format/item_checksum.h"
#include "common/format/item_summary.h"
#include "common/format/safetensors_header.h"
#include "common/resources/aligned_buffer.h"
#include "store/storage/storage.h"

namespace cairn {

struct BinDescription {
  std::string directory;  // below the root: that of the attempt
  std::string name;       // without its ending
  uint64_t header_bytes = 0;
  uint64_t data_bytes = 0;
  std::vector<StoredItem> items;  // in the order of the file
  BinIdentity identity;
  AliasList aliases;
};

// Not thread-safe. A stream that is destroyed before Finish leaves an unfinished file, which is removed with the
// attempt's directory.
class BinStream {
 public:
  // Makes the file and reserves its room: see Storage::Create.
  static absl::StatusOr<BinStream> Create(Storage& storage, BinDescription description);

  uint64_t written() const { return written_; }
  // Every call of Append but the last one for a file has a multiple of so many bytes, because object stores want large
  // parts.
  static constexpr uint64_t kPieceBytes = uint64_t{8} << 20;
  // Appends data, with direct I/O where the file system has it. `bytes` must be aligned to kIoAlignment. The memory
  // behind the data may be overwritten, up to the next such multiple.
  absl::Status Append(char* bytes, uint64_t size);
  // Writes the header, makes the file durable and gives it its name. The result has the tensors' summaries.
  // `object_bytes` has the true lengths of the file's
  // objects, in their order.
  absl::StatusOr<v1::FileResult> Finish(const std::vector<uint64_t>& object_bytes);

 private:
  explicit BinStream(std::unique_ptr<const BinDescription> description);
  std::string Path() const;

  std::unique_ptr<const BinDescription> description_;  // stays where it is: others look at its items
  ItemChecksummer checksummer_;
  ItemSummarizer summarizer_;
  std::unique_ptr<FileWriter> writer_;
  uint64_t written_ = 0;
  // In the order of the data.
  std::vector<std::vector<ItemChecksummer::Fragment>> fragments_;
  std::vector<std::vector<ItemSummarizer::Fragment>> summaries_;
};

}  // namespace cairn

#endif  // CAIRN_FOREIGN_IMPORT_BIN_STREAM_H_

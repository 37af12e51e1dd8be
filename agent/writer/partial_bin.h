// One bin that is being written.
#ifndef CAIRN_AGENT_WRITER_PARTIAL_BIN_H_
#define CAIRN_AGENT_WRITER_PARTIAL_BIN_H_

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "agent/writer/bin_write_job.h"
#include "cairn/v1/agent_coordination_service.pb.h"
#include "common/format/item_checksum.h"
#include "common/format/item_summary.h"
#include "common/resources/aligned_buffer.h"
#include "store/storage/storage.h"

namespace cairn {

// Returns the length in bytes, rounded up to whole blocks of a direct write.
uint64_t PaddedToBlock(uint64_t bytes);

// Several threads may write and check the chunks of a bin. Call Open first, and Finish after the last chunk. Errors:
// see WriteBins.
class PartialBin {
 public:
  // The bin is file `index` of job.target. All arguments must outlive it.
  PartialBin(Storage& storage, const BinWriteJob& job, const BinWriterOptions& options, const ImageFile& file,
             int index);

  int index() const { return index_; }
  uint64_t chunks() const { return chunks_; }
  // The data in a chunk, without what fills its last block.
  uint64_t ChunkBytes(uint64_t number) const {
    const uint64_t begin = number * options_.chunk_bytes;
    return std::min(options_.chunk_bytes, file_.data_bytes - std::min(file_.data_bytes, begin));
  }
  // Returns whether storage has refused direct writes (FileWriter::buffered). Call it after Open.
  bool buffered() const { return writer_->buffered(); }

  // Makes the file and reserves its full size, so that a full disk is found before anything is written. It is an error
  // if the file exists, because another process has made it. `stop`: see FileWriter::StopWhen.
  absl::Status Open(const std::atomic<bool>& stop);

  // Writes chunk `number`. Returns true to the caller that has finished the last open task of the bin (a write or a
  // check) and must now call Finish. Thread-safe.
  absl::StatusOr<bool> WriteChunk(uint64_t number, AlignedBuffer& scratch);

  // Returns true if the checksums of a chunk are computed by CheckChunk, independently of its write, so that the disk
  // never waits for them. This is possible if the chunk's bytes in the slab do not change.
  bool checked_apart(uint64_t number) const { return contiguous_ && !moves_in_[number]; }
  // Returns how far the slab must be staged (StagingProgress::Await) before a chunk is written. Chunks with objects
  // wait for all: the trainer tells their true lengths last.
  uint64_t StagedBefore(uint64_t number) const;
  // Computes the checksums of a chunk. Returns the same as WriteChunk. Thread-safe.
  bool CheckChunk(uint64_t number);

  // Writes the header, which contains the checksums of all items. Then makes the file durable and gives it its name.
  absl::StatusOr<v1::FileResult> Finish();

  // Removes the file, if this object has made it.
  absl::Status Remove();

 private:
  // Computes the checksums, and the summaries if they are wanted, of a chunk's `size` bytes.
  void Touch(uint64_t number, const char* bytes, uint64_t size);
  std::vector<const StoredItem*> Items() const;
  // Returns the offset of each item in the data, and the end of the last one.
  std::vector<uint64_t> Begins() const;
  // Returns for each chunk whether it contains bytes of items for which `is` holds.
  std::vector<bool> ChunksWith(const std::function<bool(uint32_t item)>& is) const;
  // Collects data[begin, begin + size) of the target file in `to`: from the slab, at the items' positions in the staged
  // image, and from other ranks. With `moved_only`, only the bytes from other ranks.
  absl::Status Gather(uint64_t begin, uint64_t size, char* to, bool moved_only) const;

  Storage& storage_;
  const BinWriteJob& job_;
  const BinWriterOptions& options_;
  const ImageFile& file_;
  const int index_;
  const ItemChecksummer checksummer_;
  const ItemSummarizer summarizer_;
  const bool contiguous_;
  const std::string path_;
  const uint64_t chunks_;
  const std::vector<bool> moves_in_;     // by chunk
  const std::vector<bool> has_objects_;  // the same
  std::unique_ptr<FileWriter> writer_;   // null before Open
  // By chunk. The thread that works on a chunk writes its entry; Finish reads all of them.
  std::vector<std::vector<ItemChecksummer::Fragment>> fragments_;
  std::vector<std::vector<ItemSummarizer::Fragment>> summaries_;  // the same
  std::atomic<uint64_t> left_;  // tasks that are not done: chunks to write, and chunks to check
};

}  // namespace cairn

#endif  // CAIRN_AGENT_WRITER_PARTIAL_BIN_H_

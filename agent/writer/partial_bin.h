// One bin while it is written.
#ifndef CAIRN_AGENT_WRITER_PARTIAL_BIN_H_
#define CAIRN_AGENT_WRITER_PARTIAL_BIN_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "agent/writer/bin_write_job.h"
#include "cairn/v1/agent_coordination_service.pb.h"
#include "common/format/item_checksum.h"
#include "common/resources/aligned_buffer.h"
#include "store/storage/storage.h"

namespace cairn {

// The length in whole blocks of a direct write, bytes.
uint64_t PaddedToBlock(uint64_t bytes);

// The chunks of a bin may be written and checked by several threads. Open comes before them, and Finish after the last
// one. Errors are those of storage; see WriteBins.
class PartialBin {
 public:
  // The bin is file `index` of job.target. All arguments must outlive it.
  PartialBin(Storage& storage, const BinWriteJob& job, const BinWriterOptions& options, const ImageFile& file,
             int index);

  int index() const { return index_; }
  uint64_t chunks() const { return chunks_; }
  // True if storage has refused direct writes: FileWriter::buffered. Asked after Open.
  bool buffered() const { return writer_->buffered(); }

  // Makes the file with room for all of it, so that a full disk is found before anything is written. A file that stands
  // there is somebody's, and an error.
  absl::Status Open();

  // Writes chunk `number`. True for the caller that did the last thing and must now call Finish. Thread-safe.
  absl::StatusOr<bool> WriteChunk(uint64_t number, AlignedBuffer& scratch);

  // True if the checksums of a chunk are computed apart from its writing, so that the disk never waits for them: the
  // memory stays as it is, so the order does not matter.
  bool checked_apart(uint64_t number) const { return contiguous_ && !moves_in_[number]; }
  // Computes the checksums of a chunk; returns as WriteChunk. Thread-safe.
  bool CheckChunk(uint64_t number);

  // Writes the header, which needs all checksums; then the file is made durable and gets its name.
  absl::StatusOr<v1::FileResult> Finish();

  // Gives its space back; nobody else's file is touched.
  absl::Status Remove();

 private:
  // Returns where each item begins in the data, and where the last one ends.
  std::vector<uint64_t> Begins() const;
  // Says of each chunk whether bytes of other ranks' shards stand in it.
  std::vector<bool> ChunksMovedIn() const;
  // data[begin, begin + size) of the target, from where the items lie in the staged image, and from other ranks; with
  // `moved_only` only the latter.
  absl::Status Gather(uint64_t begin, uint64_t size, char* to, bool moved_only) const;

  Storage& storage_;
  const BinWriteJob& job_;
  const BinWriterOptions& options_;
  const ImageFile& file_;
  const int index_;
  const ItemChecksummer checksummer_;
  const bool contiguous_;
  const std::string path_;
  const uint64_t chunks_;
  const std::vector<bool> moves_in_;    // by chunk
  std::unique_ptr<FileWriter> writer_;  // null before Open
  // By chunk; each is written by the thread that has the chunk, and read after the last one is done.
  std::vector<std::vector<ItemChecksummer::Fragment>> fragments_;
  std::atomic<uint64_t> left_;  // chunks to write, and to check where that is done apart
};

}  // namespace cairn

#endif  // CAIRN_AGENT_WRITER_PARTIAL_BIN_H_

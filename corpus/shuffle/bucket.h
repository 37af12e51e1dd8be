// Keeps lines on the temporary disk: a bucket holds the lines of one range of keys, as blocks of records.
//
// A block is a header of 32 bytes, then records. A record has the zigzag difference of the line's position to that of
// the record before, as varint; the line's length * 2 + long, as varint; and the line's bytes or, for a line longer
// than a block, a list of the extents that hold it. Keys are computed again from positions, so a record costs some 5
// bytes besides its line, whatever the line's length.
#ifndef CAIRN_CORPUS_SHUFFLE_BUCKET_H_
#define CAIRN_CORPUS_SHUFFLE_BUCKET_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "common/base/mutex.h"
#include "corpus/shuffle/line_key.h"
#include "corpus/shuffle/scratch_file.h"

namespace cairn::corpus {

struct Bucket {
  std::vector<ScratchExtent> extents;
  uint64_t stored_bytes = 0;  // the sum of the extents
  uint64_t records = 0;

  void Append(const Bucket& other) {
    extents.insert(extents.end(), other.extents.begin(), other.extents.end());
    stored_bytes += other.stored_bytes;
    records += other.records;
  }
};

// Holds what one record says. `line` points into the block. For a long line, `line` is the list of extents.
struct BucketRecord {
  LinePosition position;
  uint64_t length;  // the line's length
  bool is_long;
  std::string_view line;
  const char* start;  // where the length begins, behind the position: what ParseBucketLine reads
};

// Checks a block's header and checksum and visits its records in order. CHECKSUM_MISMATCH: it is not what was written.
absl::Status VisitBlock(std::string_view block, absl::FunctionRef<void(const BucketRecord&)> visitor);

// The length and line of a record that VisitBlock has visited, read from its `start`.
struct BucketLine {
  uint64_t length;
  bool is_long;
  const char* data;
};
BucketLine ParseBucketLine(const char* start);

// Returns the extents of a long line in order, from its list: the offset in the scratch file, and how many bytes of the
// line are there.
std::vector<std::pair<uint64_t, uint64_t>> ParseLongLine(const char* data);

// Writes one thread's lines into the buckets. The memory is divided into blocks; one is filled for each bucket while
// others are being written.
class BucketWriter {
 public:
  // `memory` must be page-aligned, with at least (buckets + 2) * block_bytes. `block_bytes` must be a multiple of 4
  // KiB.
  BucketWriter(ScratchFile& scratch, char* memory, size_t memory_bytes, size_t block_bytes, uint32_t buckets);
  // Waits until its writes have ended.
  ~BucketWriter();
  BucketWriter(const BucketWriter&) = delete;
  BucketWriter& operator=(const BucketWriter&) = delete;

  // Lines up to this length are whole records. Longer ones come in pieces.
  static size_t LongestLine(size_t block_bytes) { return block_bytes - 64; }

  // A later call reports errors of earlier writes: NO_SPACE, STORAGE_ERROR.
  absl::Status Add(uint32_t bucket, LinePosition position, std::string_view line);
  // Adds a record of another bucket as it was read.
  absl::Status AddRecord(uint32_t bucket, const BucketRecord& record);
  absl::Status LongLinePiece(std::string_view piece);
  absl::Status EndLongLine(uint32_t bucket, LinePosition position);

  // Writes all unfinished blocks and waits until everything is written (not synced).
  absl::Status Flush();
  // Returns what was written so far, which is complete after Flush.
  std::vector<Bucket>& buckets() { return buckets_; }

 private:
  struct Filling {
    char* block = nullptr;
    size_t filled = 0;
    uint32_t records = 0;
    LinePosition base = 0;
    LinePosition last = 0;
  };

  absl::Status Put(uint32_t bucket, LinePosition position, uint64_t length, bool is_long, std::string_view bytes);
  absl::Status WriteBlock(uint32_t bucket);
  absl::Status WriteLongBlock();
  absl::StatusOr<char*> AcquireBlock();
  void StartWrite(char* block, size_t bytes, uint64_t offset);
  absl::Status WaitForWrites();

  ScratchFile& scratch_;
  const size_t block_bytes_;
  std::vector<Filling> filling_;
  std::vector<Bucket> buckets_;

  // The long line that is being added.
  char* long_block_ = nullptr;
  size_t long_filled_ = 0;
  uint64_t long_length_ = 0;
  uint64_t region_left_ = 0;
  uint64_t region_bytes_ = 0;
  std::vector<std::pair<uint64_t, uint64_t>> long_extents_;

  Mutex mutex_;
  CondVar changed_;
  std::vector<char*> free_ ABSL_GUARDED_BY(mutex_);
  int writing_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Status error_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_SHUFFLE_BUCKET_H_

// Brings one bucket into memory, in the order of its keys.
#ifndef CAIRN_CORPUS_SHUFFLE_BUCKET_SORTER_H_
#define CAIRN_CORPUS_SHUFFLE_BUCKET_SORTER_H_

#include <atomic>
#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "common/resources/aligned_buffer.h"
#include "corpus/shuffle/bucket.h"
#include "corpus/shuffle/line_key.h"
#include "corpus/shuffle/shuffle_output.h"

namespace cairn::corpus {

// A line in memory: the first 88 bits of its key, then 40 bits that say where it lies. Lines that agree in the 88 bits
// (one chance in 2^27 among 2^31 lines) are ordered by where they lie.
struct SortEntry {
  static constexpr int kPlaceBits = 40;

  uint64_t high;
  uint64_t low;

  static SortEntry Of(const LineKey& key, uint64_t place) {
    return {key.high, key.low >> kPlaceBits << kPlaceBits | place};
  }
  uint64_t place() const { return low & ((uint64_t{1} << kPlaceBits) - 1); }
  auto operator<=>(const SortEntry&) const = default;
};

// Sorts entries whose `high` is spread evenly over a range, as that of keys is.
void SortEntries(std::span<SortEntry> entries);

// Only one thread may use it. Its memory is given; besides that it has one small buffer for long lines.
class BucketSorter {
 public:
  struct Options {
    uint64_t seed = 0;
    size_t block_bytes = 0;
    bool discard = true;  // gives the disk space of what was loaded back at once
    const std::atomic<bool>* stop = nullptr;
    std::atomic<uint64_t>* bytes_written = nullptr;  // for progress; may be null
  };

  // `memory` must be page-aligned, with at least 4 blocks.
  BucketSorter(ScratchFile& scratch, char* memory, size_t memory_bytes, const Options& options);

  bool Fits(const Bucket& bucket) const;
  // Reads and sorts a bucket that fits into memory. CHECKSUM_MISMATCH, STORAGE_ERROR.
  absl::Status Load(const Bucket& bucket);
  // Writes the loaded lines. Errors of the output; INTERRUPTED.
  absl::Status Emit(ShuffleOutput& output);
  // Writes a bucket that does not fit into memory, by dividing it. `range` has its keys.
  absl::Status EmitDivided(const Bucket& bucket, const KeyRange& range, ShuffleOutput& output);

 private:
  absl::Status EmitLong(uint64_t length, const char* list, ShuffleOutput& output);
  absl::Status Divide(const Bucket& bucket, const KeyRange& range, std::vector<Bucket>& parts);
  bool Stopped() const { return options_.stop != nullptr && options_.stop->load(std::memory_order_relaxed); }

  ScratchFile& scratch_;
  char* const memory_;
  const size_t memory_bytes_;
  const Options options_;
  LineKeyMaker keys_;
  AlignedBuffer long_buffer_;
  std::span<SortEntry> entries_;
};

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_SHUFFLE_BUCKET_SORTER_H_

// The one output file of a shuffle in parts, into which each task writes its sorted bucket, so that nobody has to join
// them.
#ifndef CAIRN_CORPUS_SHUFFLE_SHARED_OUTPUT_H_
#define CAIRN_CORPUS_SHUFFLE_SHARED_OUTPUT_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "corpus/io/copied_file.h"
#include "corpus/shuffle/line_multiset.h"
#include "corpus/shuffle/shuffle_options.h"

namespace cairn::corpus {

// Only one thread may use it. The destructor removes the hidden file unless it was committed.
class SharedOutput {
 public:
  // Returns whether the output can be written so: it is one file of this file system, and not compressed.
  static absl::StatusOr<bool> Fits(const ShuffleOptions& options);
  // Makes the hidden file, with the header. `buckets` are what will be in it, in this order. Errors of ListInputs,
  // ReadHeaders and CopiedFile::Create.
  static absl::StatusOr<std::unique_ptr<SharedOutput>> Create(const ShuffleOptions& options,
                                                              const std::vector<LineMultiset>& buckets,
                                                              const std::atomic<bool>& stop);

  // What ShuffleOptions::output and ::at are for the bucket.
  const std::string& path() const { return file_->partial_path(); }
  uint64_t OffsetOf(size_t bucket) const { return offsets_[bucket]; }
  // Records that the bucket's lines are in the file: the file has its size from the beginning, and does not tell.
  void MarkWritten(size_t bucket) { written_[bucket] = true; }

  // Syncs the file and gives it its name. STORAGE_ERROR: a bucket that has lines is not written, or the file has
  // another size than it must have. Errors of CopiedFile::Commit.
  absl::StatusOr<ShuffleReport> Commit();

 private:
  SharedOutput() = default;

  std::unique_ptr<CopiedFile> file_;
  std::vector<uint64_t> offsets_;  // of the buckets, and where the last one ends
  std::vector<bool> written_;
  ShuffleReport report_;
};

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_SHUFFLE_SHARED_OUTPUT_H_

// Fills the buffer of a round, from storage or from what the slab still holds, and verifies what it read.
#ifndef CAIRN_AGENT_READER_ROUND_READER_H_
#define CAIRN_AGENT_READER_ROUND_READER_H_

#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "agent/reader/load_counters.h"
#include "agent/reader/slab_image.h"
#include "cairn/v1/plan.pb.h"
#include "common/base/mutex.h"
#include "common/format/safetensors_header.h"
#include "store/storage/storage.h"
#include "store/storage/stored_file.h"

namespace cairn {

struct RoundReaderOptions {
  int io_threads = 2;
  // The size of one read, a multiple of 4096.
  uint64_t chunk_bytes = uint64_t{8} << 20;
  // kSpare, or kUse: a state that is small beside the memory that is free is found there by the next load.
  Cache cache = Cache::kSpare;
  // Files of the plan that stand in the slab are copied from here. Null: all are read from storage.
  std::shared_ptr<SlabImage> slab = nullptr;
};

// Reads the rounds of one load. Each file's header is read and compared with the manifest's checksum. An item that a
// read covers whole is checked by its CRC32C of the manifest; of the others the blocks that a read touches are checked
// by those of the file's header, for which the rest of a block is read too. Bytes of the slab are checked in the same
// way, after they were copied to where nobody writes. A file is read from storage instead, and the log says so, if the
// slab is given up meanwhile or does not hold what the manifest says. Thread-safe but for ReadRound.
class RoundReader {
 public:
  // `plan` must outlive it; `directory` is put before its files' paths ("<job>").
  RoundReader(Storage& storage, std::string directory, const v1::ReadPlan& plan, RoundReaderOptions options);
  ~RoundReader();

  // INVALID_ARGUMENT (BAD_REQUEST): the plan's numbers contradict each other.
  absl::Status CheckPlan() const;

  // Reads all of a round into `buffer`, which has the round's buffer_bytes rounded up to 4096, 4096-aligned. Returns
  // when all is there and right, at the first error, or soon after `stop`. DATA_LOSS (CHECKSUM_MISMATCH): names file,
  // offset and tensor; (FILE_MISSING, FILE_TRUNCATED, BAD_SAFETENSORS); UNAVAILABLE (STORAGE_ERROR); CANCELLED
  // (INTERRUPTED): stopped.
  absl::Status ReadRound(uint32_t round, char* buffer, const std::atomic<bool>& stop);

  // Planned bytes that were read and verified.
  uint64_t bytes_done() const { return bytes_done_; }
  // Counts what storage gave, with alignment and verification.
  const LoadCounters& counters() const { return counters_; }

 private:
  struct File;
  struct Piece;
  struct Fragment;
  struct Job;

  absl::StatusOr<File*> OpenFile(uint32_t number);
  // Opens what stands in storage, if that was not done yet, and compares its header.
  absl::StatusOr<StoredFile*> InStorage(File& file);
  // Copies a range of the file out of the slab. False: it is to be read from storage.
  bool CopyFromSlab(const File& file, uint64_t offset, uint64_t bytes, char* to);
  // Takes all further files from storage.
  void LeaveSlab(const absl::Status& why);
  absl::StatusOr<const ItemChecksums*> BlocksOf(File& file, size_t item);
  static void Touch(const File& file, uint64_t file_offset, const char* bytes, uint64_t size,
                    std::vector<Fragment>& fragments);
  absl::Status ReadPiece(Job& job, Piece& piece, char* buffer);
  bool CopyPiece(const File& file, Piece& piece, char* to);
  absl::Status ReadFrom(File& file, uint64_t offset, uint64_t bytes, char* to);
  absl::Status VerifyRead(Job& job, size_t read);
  // Verifies a read of which all pieces are there. If what came from the slab is not right, it is read anew.
  absl::Status FinishRead(Job& job, size_t read, char* buffer);
  absl::Status VerifyBlock(File& file, size_t item, uint64_t block, uint64_t from, uint64_t until, uint32_t crc32c);
  absl::Status Mismatch(const File& file, size_t item, uint64_t offset, uint32_t found, uint32_t expected) const;

  Storage& storage_;
  const std::string directory_;
  const v1::ReadPlan& plan_;
  const RoundReaderOptions options_;
  LoadCounters counters_;
  std::atomic<uint64_t> bytes_done_ = 0;
  std::atomic<bool> slab_left_ = false;
  Mutex mutex_;
  std::map<uint32_t, std::unique_ptr<File>> files_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cairn

#endif  // CAIRN_AGENT_READER_ROUND_READER_H_

// Reads a round into its buffer, from storage or from the slab, and verifies the bytes.
#ifndef CAIRN_AGENT_READER_ROUND_READER_H_
#define CAIRN_AGENT_READER_ROUND_READER_H_

#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "agent/reader/load_counters.h"
#include "agent/reader/read_fragments.h"
#include "agent/reader/round_pieces.h"
#include "agent/reader/slab_image.h"
#include "cairn/v1/plan.pb.h"
#include "common/base/mutex.h"
#include "common/file/unique_fd.h"
#include "store/storage/storage.h"
#include "store/storage/stored_file.h"

namespace cairn {

struct RoundReaderOptions {
  int io_threads = 2;
  // The size of one read, a multiple of 4096.
  uint64_t chunk_bytes = uint64_t{8} << 20;
  // kSpare; or kUse, to keep a state that is small compared to the free memory in the page cache for the next load.
  Cache cache = Cache::kSpare;
  // Files of the plan that are still in this slab are copied from it. Null: all files are read from storage.
  std::shared_ptr<SlabImage> slab = nullptr;
};

// A round whose pieces are in memory, where its consumer reads them by descriptors. Its pieces ascend in their reads.
struct LentPieces {
  // Where the pieces of a file are read.
  struct Source {
    uint32_t file = 0;     // as in Read
    bool in_slab = false;  // in this agent's slab, where the file begins at `begin`; else in the file itself
    uint64_t begin = 0;
  };
  std::vector<RoundPiece> pieces;
  std::vector<Source> sources;  // one for each file of the pieces, at most kMostLentFiles
  // So many of their bytes are in the slab, and were in the page cache before; the others were fetched.
  uint64_t slab_bytes = 0;
  uint64_t cached_bytes = 0;
};

// A descriptor is open on both sides for each file of a lent round.
inline constexpr size_t kMostLentFiles = 32;

// Reads the rounds of one load. Each file's header is compared with its checksum in the manifest. If a read covers a
// whole item, the item is compared with its CRC32C in the manifest. Otherwise each block that the read touches is
// compared with its CRC32C in the file's header; for this the rest of the block is read too. Bytes of the slab are
// copied first and then checked in the same way. If the slab is given up meanwhile or differs from the manifest, files
// are read from storage instead, and the log says so. Thread-safe, except that only one ReadRound may run at a time.
class RoundReader {
 public:
  // `plan` must outlive the reader. `directory` ("<job>") is the prefix of the paths of its files.
  RoundReader(Storage& storage, std::string directory, const v1::ReadPlan& plan, RoundReaderOptions options);
  ~RoundReader();

  // INVALID_ARGUMENT (BAD_REQUEST): the plan's numbers contradict each other.
  absl::Status CheckPlan() const;

  // Reads a round into `buffer`, whose size is the round's buffer_bytes rounded up to 4096, and which is 4096-aligned.
  // Returns when all bytes are read and verified, at the first error, or soon after `stop` became true. DATA_LOSS
  // (CHECKSUM_MISMATCH): the message names file, offset and tensor; (FILE_MISSING, FILE_TRUNCATED, BAD_SAFETENSORS): a
  // file is missing, too short, or has a wrong header. UNAVAILABLE (STORAGE_ERROR). CANCELLED (INTERRUPTED): `stop`
  // became true.
  absl::Status ReadRound(uint32_t round, char* buffer, const std::atomic<bool>& stop);

  // Has the bytes of a round in the page cache, or finds them in the slab, so that its consumer reads them without
  // waiting for storage. Returns nothing if the round must be read by ReadRound: it cannot be taken in pieces, or its
  // files are read past the page cache, or cannot be shared. Fails as ReadRound.
  absl::StatusOr<std::optional<LentPieces>> Lend(uint32_t round, const std::atomic<bool>& stop);
  // Returns a descriptor by which another process reads a source of lent pieces. UNAVAILABLE (STORAGE_ERROR): there is
  // none to be had now.
  absl::StatusOr<UniqueFd> Share(const LentPieces::Source& source);
  // Compares what a consumer has read with the manifest, as ReadRound does: `checksums` are those of the lent pieces,
  // and stand for bytes in the consumer's memory. Fails as ReadRound, which then finds out whether slab or file is
  // wrong, or only what the consumer has.
  absl::Status VerifyPieces(uint32_t round, const LentPieces& lent, std::span<const uint32_t> checksums);

  // Returns the number of planned bytes that were read and verified.
  uint64_t bytes_done() const { return bytes_done_; }
  // Counts all bytes that were read, including those for alignment and verification.
  const LoadCounters& counters() const { return counters_; }

 private:
  struct File;
  struct Piece;
  struct Job;

  absl::StatusOr<File*> OpenFile(uint32_t number);
  // Opens the file in storage and checks its header, unless this was already done.
  absl::StatusOr<StoredFile*> InStorage(File& file);
  // Copies a range of the file from the slab. Returns false if it must be read from storage.
  bool CopyFromSlab(const File& file, uint64_t offset, uint64_t bytes, char* to);
  // Reads everything from storage from now on. Logs `why`.
  void LeaveSlab(const absl::Status& why);
  static void Touch(const File& file, uint64_t file_offset, const char* bytes, uint64_t size,
                    std::vector<ReadFragment>& fragments);
  // Waits until a part of a file is in the page cache. Returns how it came there; kDirect if it is not to come there.
  absl::StatusOr<StoredFile::Way> Fetch(File& file, uint64_t offset, uint64_t bytes);
  absl::Status ReadPiece(Job& job, Piece& piece, char* buffer);
  bool CopyPiece(const File& file, Piece& piece, char* to);
  absl::Status ReadFrom(File& file, uint64_t offset, uint64_t bytes, char* to);
  // `fragments` are those of the read, in their order.
  absl::Status VerifyRead(const v1::Read& read, const std::vector<ReadFragment>& fragments);
  absl::Status VerifyRead(const Job& job, size_t read);
  // Verifies a read whose pieces are all in the buffer. If bytes of the slab are wrong, reads them from storage.
  absl::Status FinishRead(Job& job, size_t read, char* buffer);
  absl::Status VerifyBlock(File& file, size_t item, uint64_t block, uint64_t from, uint64_t until, uint32_t crc32c);

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

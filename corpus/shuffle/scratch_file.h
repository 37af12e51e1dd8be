// The temporary disk of a shuffle: one file that a few threads write and read in aligned blocks.
#ifndef CAIRN_CORPUS_SHUFFLE_SCRATCH_FILE_H_
#define CAIRN_CORPUS_SHUFFLE_SCRATCH_FILE_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/mutex.h"
#include "common/file/unique_fd.h"
#include "common/resources/aligned_buffer.h"

namespace cairn::corpus {

// A stretch of the file, as one number. Its offset and its size are multiples of kIoAlignment.
class ScratchExtent {
 public:
  ScratchExtent() = default;
  ScratchExtent(uint64_t offset, uint64_t bytes) : packed_((offset / kIoAlignment) << 20 | bytes / kIoAlignment) {}
  uint64_t offset() const { return (packed_ >> 20) * kIoAlignment; }
  size_t bytes() const { return static_cast<size_t>((packed_ & 0xfffff) * kIoAlignment); }

  uint64_t packed() const { return packed_; }
  static ScratchExtent FromPacked(uint64_t packed) {
    ScratchExtent extent;
    extent.packed_ = packed;
    return extent;
  }

 private:
  uint64_t packed_ = 0;
};

// Thread-safe. There is one file however many buckets there are, so no limit of open files matters. It is written in
// the order of time, so the disk sees long sequential writes.
class ScratchFile {
 public:
  struct Options {
    bool direct = true;  // tries O_DIRECT
    int threads = 4;
    // If it is empty, the file has no name in `directory`, and the kernel frees it however the process ends. Else it is
    // this file, which is kept; `resume_at` bytes of it count.
    std::string path;
    uint64_t resume_at = 0;
  };

  // NO_SPACE, STORAGE_READ_ONLY, STORAGE_ERROR; MEMORY_LIMIT: the system grants not one thread.
  static absl::StatusOr<std::unique_ptr<ScratchFile>> Create(const std::string& directory, const Options& options);
  ~ScratchFile();
  ScratchFile(const ScratchFile&) = delete;
  ScratchFile& operator=(const ScratchFile&) = delete;

  // Returns a stretch that nobody else has. `bytes` must be a multiple of 4 KiB.
  uint64_t Allocate(uint64_t bytes);
  uint64_t allocated() const { return allocated_.load(std::memory_order_relaxed); }

  // Starts a transfer between page-aligned memory and the file; both sizes must be multiples of 4 KiB. Another thread
  // calls `done` with the result: NO_SPACE, STORAGE_ERROR (also for a read behind what was written).
  using Done = std::function<void(const absl::Status&)>;
  void Write(const char* data, size_t bytes, uint64_t offset, Done done);
  void Read(char* data, size_t bytes, uint64_t offset, Done done);
  // Does the same and waits for the result.
  absl::Status ReadNow(char* data, size_t bytes, uint64_t offset) const;

  // Makes all writes durable. FSYNC_FAILED.
  absl::Status Sync();
  // Tells the file system that the stretch's space is free, if it can be told so.
  void Discard(const ScratchExtent& extent);

  bool direct() const { return direct_.load(std::memory_order_relaxed); }
  const std::string& place() const { return place_; }

 private:
  struct Job {
    bool write;
    char* data;
    size_t bytes;
    uint64_t offset;
    Done done;
  };

  ScratchFile(std::string place, UniqueFd fd, bool direct, const Options& options);
  absl::Status StartThreads(int threads);
  void Loop();
  absl::Status Transfer(bool write, char* data, size_t bytes, uint64_t offset) const;

  const std::string place_;  // for messages
  const UniqueFd fd_;
  mutable std::atomic<bool> direct_;
  std::atomic<uint64_t> allocated_{0};
  std::atomic<uint64_t> prepared_{0};  // up to here the file system has given it space, or was asked to
  Mutex mutex_;
  CondVar changed_;
  std::deque<Job> jobs_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_SHUFFLE_SCRATCH_FILE_H_

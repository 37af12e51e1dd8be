// Reads parts of files into a program's memory with several threads.
#ifndef CAIRN_PYTHON_NATIVE_FILE_READER_H_
#define CAIRN_PYTHON_NATIVE_FILE_READER_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "common/base/mutex.h"
#include "python/native/file_pieces.h"

namespace cairn {

// What became of a read.
struct FileReadOutcome {
  enum class Kind : int64_t {
    kDone = 0,
    kErrno = 1,       // the system refused with `error`
    kTruncated = 2,   // the file ends before the piece does, or has another length than was said
    kNotRegular = 3,  // there is something else than a regular file
    kNoMemory = 4,    // no memory or thread was to be had
    kCancelled = 5,
    kRunning = 6,  // `file` and `offset` are those of the first piece that is being read
  };

  Kind kind = Kind::kDone;
  int error = 0;
  size_t file = 0;
  int64_t offset = 0;
  // Bytes that came from the page cache, through it, and past it. What lies in gaps and is dropped counts as well.
  int64_t cached_bytes = 0;
  int64_t buffered_bytes = 0;
  int64_t direct_bytes = 0;
};

// One read of many pieces. Thread-safe.
//
// What is in the page cache is copied from there. What is not goes through the page cache if other processes want the
// same bytes (`shared`): the kernel then reads them once for all. Otherwise large pieces are read past it (O_DIRECT),
// where the file system allows that.
//
// The system cannot end a thread that hangs in storage. So the threads belong to the read and not to its caller: they
// end when the storage answers, and until then the targets must stay.
class FileRead {
 public:
  struct Source {
    std::string path;
    int64_t bytes = 0;  // the length that the file must have
  };

  // Begins to read. The pieces are in the order of their files. It does not wait for storage.
  static std::shared_ptr<FileRead> Begin(const std::vector<Source>& files, std::vector<FilePiece> pieces, int threads,
                                         bool shared);
  ~FileRead();

  // Waits until no thread touches a target any more. Returns the outcome, of kind kRunning after `timeout`.
  FileReadOutcome Wait(absl::Duration timeout);
  // Has the threads take no more pieces. The outcome is kCancelled, if nothing failed before.
  void Cancel();

 private:
  struct OpenFile;
  class Reader;

  FileRead() = default;
  void RunThread(size_t thread);
  // Takes note of the first failure, and stops all threads.
  void Fail(FileReadOutcome::Kind kind, int error, size_t file, int64_t offset);

  // These are constant after Begin.
  std::vector<std::unique_ptr<OpenFile>> files_;
  std::vector<FilePiece> pieces_;
  bool shared_ = true;

  std::atomic<size_t> next_ = 0;
  std::atomic<bool> stop_ = false;
  std::atomic<int64_t> cached_bytes_ = 0;
  std::atomic<int64_t> buffered_bytes_ = 0;
  std::atomic<int64_t> direct_bytes_ = 0;
  // The number of the piece that each thread reads; the number of pieces if it reads none.
  std::deque<std::atomic<size_t>> current_;

  Mutex mutex_;
  CondVar ended_;
  int running_ ABSL_GUARDED_BY(mutex_) = 0;
  FileReadOutcome failure_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cairn

#endif  // CAIRN_PYTHON_NATIVE_FILE_READER_H_

// Writes a file that gets its name only when it is whole: bytes are appended to a hidden file beside it, which is
// synced and renamed at the end. A link is followed, and stays (output_place.h). Writes go around the page cache
// (O_DIRECT) where the file system allows it, from a thread of their own, so the caller computes while the disk writes.
// Buffered writing would cost about three seconds of kernel time per gigabyte. An object is sent in parts
// (object_output.h), and there is no hidden file.
#ifndef CAIRN_CORPUS_IO_OUTPUT_FILE_H_
#define CAIRN_CORPUS_IO_OUTPUT_FILE_H_

#include <fcntl.h>

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/mutex.h"
#include "common/file/unique_fd.h"
#include "common/resources/aligned_buffer.h"
#include "corpus/io/object_output.h"

namespace cairn::corpus {

// Only one thread may use it at a time. The destructor removes the hidden file unless it was committed or kept.
class OutputFile {
 public:
  struct Options {
    bool direct = true;             // tries O_DIRECT, and does without it where the file system refuses
    size_t buffer_bytes = 1 << 20;  // a multiple of kIoAlignment
    int buffers = 3;                // at least 2; together they take buffers * buffer_bytes
    std::string partial_path;       // the hidden file; if empty, a fresh name beside the output
    // Takes a device, a FIFO or an open descriptor too, into which the bytes go in order as they come. There is no
    // hidden file then, and neither Checkpoint nor Resume.
    bool stream = false;
    // The path is a file that stands, of which others write other ranges at the same time: the bytes go there from this
    // offset on. It keeps its name, and nothing is cut off or removed. There is neither Checkpoint, Resume nor Commit.
    std::optional<uint64_t> at;
    const std::atomic<bool>* stop = nullptr;  // once it is set, a stream that takes nothing is given up; may be null
    int object_parts = 4;  // of an object: as ObjectOutput::Create; the buffers above are not used then
  };
  // Says where a file stood at a Checkpoint. Resume needs it.
  struct Position {
    uint64_t durable_bytes = 0;  // bytes on disk and synced, a multiple of the buffer size
    std::string tail;            // the bytes after them, less than one buffer
  };

  // BAD_REQUEST: as FindReplaceable, or FindOutputPlace and OpenStream if the options allow a stream. NO_SPACE,
  // STORAGE_READ_ONLY, STORAGE_ERROR: the hidden file cannot be created (for example, the directory is missing). Of an
  // object also as ObjectOutput::Create.
  // Removes what killed runs have left beside the file, unless the options name a hidden file.
  static absl::StatusOr<std::unique_ptr<OutputFile>> Create(std::string path, Options options);
  // Goes on with the hidden file `options.partial_path` from `position`, and cuts off what lies behind it.
  static absl::StatusOr<std::unique_ptr<OutputFile>> Resume(std::string path, Options options,
                                                            const Position& position);
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  // The next call reports errors of earlier writes: NO_SPACE, STORAGE_ERROR; INTERRUPTED of a stream.
  absl::Status Append(std::string_view bytes);

  // Waits until all whole buffers are on disk. Not for objects. FSYNC_FAILED, NO_SPACE, STORAGE_ERROR.
  absl::StatusOr<Position> Checkpoint();

  // Writes the rest, cuts the file to its length and syncs it. The file keeps its hidden name, and nothing can be
  // appended.
  absl::Status Finish();
  // Calls Finish if that was not done, renames the file to its path, replacing the file that stood there, and syncs the
  // directory.
  absl::Status Commit();
  // Does the same, but leaves it to the caller to sync the directory when the last of many files has its name there.
  absl::Status Publish();
  // Makes the destructor leave the hidden file, because another process will resume it.
  void Keep() { keep_ = true; }

  uint64_t bytes() const { return object_ != nullptr ? object_->bytes() : written_ + filled_ - begin_; }
  bool direct() const { return direct_; }
  bool is_object() const { return object_ != nullptr; }
  // Returns where the file stands or will stand, without links; of a stream, the name that was given.
  const std::string& path() const { return path_; }
  // Empty: a stream or an object.
  const std::string& partial_path() const { return partial_path_; }
  // Returns what keeps the hidden file from being taken for one that was left, also when this object is gone.
  UniqueFd Hold() const { return UniqueFd(fcntl(fd_.get(), F_DUPFD_CLOEXEC, 0)); }

 private:
  struct Pending {
    AlignedBuffer buffer;
    size_t size;
    uint64_t offset;
    size_t skip;  // bytes at the front that are not written
  };

  OutputFile(std::string path, std::string partial_path, UniqueFd fd, bool direct, const Options& options);
  OutputFile(std::string path, std::unique_ptr<ObjectOutput> object);
  static absl::StatusOr<std::unique_ptr<OutputFile>> OpenShared(std::string path, const Options& options);
  void WriteLoop();
  absl::Status SubmitBuffer();
  absl::Status WaitForWrites();
  absl::Status WritePending(const char* data, size_t size, uint64_t offset, size_t skip);
  absl::Status WriteRange(const char* data, size_t size, uint64_t offset);
  absl::Status WriteAt(int fd, const char* data, size_t size, uint64_t offset);
  absl::Status WriteNext(const char* data, size_t size);
  bool stream() const { return partial_path_.empty(); }
  bool shared() const { return edges_.valid(); }

  const std::string path_;
  const std::unique_ptr<ObjectOutput> object_;  // does all of the work; null: a file or a stream
  const std::string partial_path_;
  const UniqueFd fd_;
  UniqueFd edges_;      // of a file that others write too: for what is in their pages too, without O_DIRECT
  uint64_t begin_ = 0;  // the first byte of such a file that is written
  const size_t buffer_bytes_;
  const std::atomic<bool>* const stop_;
  bool direct_;
  bool finished_ = false;
  bool committed_ = false;
  bool keep_ = false;
  AlignedBuffer current_;
  size_t filled_ = 0;     // in current_
  uint64_t written_ = 0;  // handed to the writing thread

  Mutex mutex_;
  CondVar changed_;
  std::deque<Pending> queue_ ABSL_GUARDED_BY(mutex_);
  std::vector<AlignedBuffer> free_ ABSL_GUARDED_BY(mutex_);
  int unwritten_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Status error_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

// Removes the files or objects of one directory that a new set is about to replace, in this order; those that are not
// there do not matter. Of a link, the file goes that it leads to. Sets of files that belong together are replaced so:
// all new ones are written and synced, the old ones go, the new ones get their names. So a full disk changes nothing,
// and a kill leaves a set that lacks files, which its readers can see, but never a mixture of two. STORAGE_READ_ONLY,
// STORAGE_ERROR, FSYNC_FAILED; of objects also as ObjectStores::Remove.
absl::Status RemoveReplaced(std::span<const std::string> paths);

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_IO_OUTPUT_FILE_H_

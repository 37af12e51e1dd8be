#include "corpus/io/output_file.h"

#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/file/atomic_write.h"
#include "common/resources/thread.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "corpus/io/errno_status.h"
#include "corpus/io/hidden_file.h"
#include "corpus/io/object_stores.h"
#include "corpus/io/output_place.h"

namespace cairn::corpus {
namespace {

constexpr int kStopLookMs = 100;

// Opens with O_DIRECT where it is wanted and possible.
UniqueFd OpenForWriting(const std::string& path, int flags, bool* direct) {
  if (*direct) {
    UniqueFd fd(open(path.c_str(), flags | O_DIRECT, 0666));
    if (fd.valid() || errno != EINVAL) return fd;
    *direct = false;
  }
  return UniqueFd(open(path.c_str(), flags, 0666));
}

}  // namespace

absl::Status RemoveReplaced(std::span<const std::string> paths) {
  if (paths.empty()) return absl::OkStatus();
  if (ObjectStores* const stores = StoresOf(paths.front())) return stores->Remove({paths.begin(), paths.end()});
  for (const std::string& path : paths) {
    CAIRN_ASSIGN_OR_RETURN(const OutputPlace place, FindReplaceable(path));
    if (unlink(place.path.c_str()) != 0 && errno != ENOENT) return OutputError("replace", path, errno);
  }
  // After a power cut too, no old file may stand beside a new one.
  return SyncDirectoryOf(paths.front());
}

OutputFile::OutputFile(std::string path, std::string partial_path, UniqueFd fd, bool direct, const Options& options)
    : path_(std::move(path)),
      partial_path_(std::move(partial_path)),
      fd_(std::move(fd)),
      buffer_bytes_(RoundUpToIo(options.buffer_bytes)),
      stop_(options.stop),
      direct_(direct),
      current_(buffer_bytes_) {
  for (int i = 1; i < std::max(options.buffers, 2); ++i) free_.emplace_back(buffer_bytes_);
  // Where the system refuses a thread, the caller writes.
  if (auto thread = StartThread("to write", [this] { WriteLoop(); }); thread.ok()) thread_ = *std::move(thread);
}

OutputFile::OutputFile(std::string path, std::unique_ptr<ObjectOutput> object)
    : path_(std::move(path)), object_(std::move(object)), buffer_bytes_(0), stop_(nullptr), direct_(true) {}

absl::StatusOr<std::unique_ptr<OutputFile>> OutputFile::Create(std::string path, Options options) {
  CAIRN_ASSIGN_OR_RETURN(const OutputPlace place, options.stream ? FindOutputPlace(path) : FindReplaceable(path));
  if (place.object) {
    CAIRN_ASSIGN_OR_RETURN(auto object, ObjectOutput::Create(*StoresOf(place.path), place.path, options.object_parts));
    return std::unique_ptr<OutputFile>(new OutputFile(place.path, std::move(object)));
  }
  if (place.stream) {
    CAIRN_ASSIGN_OR_RETURN(UniqueFd fd, OpenStream(place));
    return std::unique_ptr<OutputFile>(new OutputFile(std::move(path), "", std::move(fd), false, options));
  }
  path = place.path;
  if (options.at.has_value()) return OpenShared(std::move(path), options);
  if (options.partial_path.empty()) RemoveLeftHidden(path, [](std::string_view) { return false; });
  bool direct = options.direct;
  std::string partial;
  UniqueFd fd;
  do {
    partial = options.partial_path.empty() ? HiddenName(path, FreshHiddenToken()) : options.partial_path;
    fd = OpenForWriting(partial, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, &direct);
    if (!fd.valid()) return OutputError("create", partial, errno);
  } while (!LockHidden(fd.get()) && options.partial_path.empty());
  return std::unique_ptr<OutputFile>(new OutputFile(std::move(path), partial, std::move(fd), direct, options));
}

absl::StatusOr<std::unique_ptr<OutputFile>> OutputFile::OpenShared(std::string path, const Options& options) {
  bool direct = options.direct;
  UniqueFd fd = OpenForWriting(path, O_WRONLY | O_CLOEXEC, &direct);
  UniqueFd edges(open(path.c_str(), O_WRONLY | O_CLOEXEC));
  if (!fd.valid() || !edges.valid()) return OutputError("open", path, errno);
  auto file = std::unique_ptr<OutputFile>(new OutputFile(path, path, std::move(fd), direct, options));
  file->edges_ = std::move(edges);
  file->keep_ = true;
  // Buffers begin where pages of the file do.
  file->begin_ = *options.at;
  file->filled_ = *options.at % kIoAlignment;
  file->written_ = file->begin_ - file->filled_;
  return file;
}

absl::StatusOr<std::unique_ptr<OutputFile>> OutputFile::Resume(std::string path, Options options,
                                                               const Position& position) {
  bool direct = options.direct;
  UniqueFd fd = OpenForWriting(options.partial_path, O_WRONLY | O_CLOEXEC, &direct);
  if (!fd.valid()) return OutputError("open", options.partial_path, errno);
  struct stat found;
  if (fstat(fd.get(), &found) != 0 || static_cast<uint64_t>(found.st_size) < position.durable_bytes ||
      ftruncate(fd.get(), static_cast<off_t>(position.durable_bytes)) != 0) {
    return MakeError(Reason::kFileTruncated,
                     absl::StrCat(options.partial_path, " lacks bytes that were written before the interruption"),
                     {{"file", options.partial_path}});
  }
  auto file = std::unique_ptr<OutputFile>(
      new OutputFile(std::move(path), options.partial_path, std::move(fd), direct, options));
  file->written_ = position.durable_bytes;
  CAIRN_RETURN_IF_ERROR(file->Append(position.tail));
  return file;
}

OutputFile::~OutputFile() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    queue_.clear();
    changed_.NotifyAll();
  }
  if (thread_.joinable()) thread_.join();
  if (!committed_ && !keep_ && !stream()) unlink(partial_path_.c_str());
}

absl::Status OutputFile::WriteNext(const char* data, size_t size) {
  struct stat found = {};
  // A pipe that is ready takes PIPE_BUF bytes without waiting (pipe(7)). The descriptor may be shared with others, so
  // it is not made non-blocking.
  const bool file = fstat(fd_.get(), &found) == 0 && S_ISREG(found.st_mode);
  const size_t piece = file ? buffer_bytes_ : PIPE_BUF;
  while (size > 0) {
    pollfd ready{fd_.get(), POLLOUT, 0};
    const int count = poll(&ready, 1, kStopLookMs);
    if (stop_ != nullptr && stop_->load(std::memory_order_relaxed))
      return MakeError(Reason::kInterrupted, "interrupted");
    if (count == 0 || (count < 0 && errno == EINTR)) continue;
    const ssize_t done = write(fd_.get(), data, std::min(size, piece));
    if (done < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (done <= 0) return OutputError("write", path_, done == 0 ? ENOSPC : errno);
    data += done;
    size -= static_cast<size_t>(done);
  }
  return absl::OkStatus();
}

absl::Status OutputFile::WritePending(const char* data, size_t size, uint64_t offset, size_t skip) {
  if (stream()) return WriteNext(data, size);
  return shared() ? WriteRange(data + skip, size - skip, offset + skip) : WriteAt(fd_.get(), data, size, offset);
}

// Writes whole pages past the page cache; what is only a part of a page at either end may be next to the bytes of
// another process, which a whole page would overwrite.
absl::Status OutputFile::WriteRange(const char* data, size_t size, uint64_t offset) {
  const size_t head = std::min<size_t>(size, (kIoAlignment - offset % kIoAlignment) % kIoAlignment);
  const size_t pages = (size - head) / kIoAlignment * kIoAlignment;
  CAIRN_RETURN_IF_ERROR(WriteAt(edges_.get(), data, head, offset));
  CAIRN_RETURN_IF_ERROR(WriteAt(fd_.get(), data + head, pages, offset + head));
  return WriteAt(edges_.get(), data + head + pages, size - head - pages, offset + head + pages);
}

absl::Status OutputFile::WriteAt(int fd, const char* data, size_t size, uint64_t offset) {
  while (size > 0) {
    const ssize_t done = pwrite(fd, data, size, static_cast<off_t>(offset));
    if (done < 0 && errno == EINTR) continue;
    if (done < 0 && errno == EINVAL) {
      // A file system may accept O_DIRECT at open and refuse it now.
      const int flags = fcntl(fd, F_GETFL);
      if ((flags & O_DIRECT) != 0 && fcntl(fd, F_SETFL, flags & ~O_DIRECT) == 0) continue;
    }
    if (done <= 0) return OutputError("write", partial_path_, done == 0 ? ENOSPC : errno);
    data += done;
    offset += static_cast<uint64_t>(done);
    size -= static_cast<size_t>(done);
    // A short write (on a nearly full disk) leaves an unaligned rest, which only a buffered write can take.
    if (size > 0 && offset % kIoAlignment != 0) fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_DIRECT);
  }
  return absl::OkStatus();
}

void OutputFile::WriteLoop() {
  while (true) {
    Pending pending;
    absl::Status status;
    {
      MutexLock lock(mutex_);
      while (queue_.empty() && !stopping_) changed_.Wait(mutex_);
      if (queue_.empty()) return;
      pending = std::move(queue_.front());
      queue_.pop_front();
      status = error_;
    }
    // Nothing follows what was not written: in a stream it would stand in its place.
    if (status.ok()) status = WritePending(pending.buffer.data(), pending.size, pending.offset, pending.skip);
    MutexLock lock(mutex_);
    if (error_.ok()) error_ = std::move(status);
    free_.push_back(std::move(pending.buffer));
    --unwritten_;
    changed_.NotifyAll();
  }
}

absl::Status OutputFile::SubmitBuffer() {
  const size_t size = stream() || shared() ? filled_ : RoundUpToIo(filled_);
  const size_t skip = begin_ > written_ ? static_cast<size_t>(begin_ - written_) : 0;
  MutexLock lock(mutex_);
  if (!thread_.joinable()) {
    if (error_.ok()) error_ = WritePending(current_.data(), size, written_, skip);
    written_ += filled_;
    filled_ = 0;
    return error_;
  }
  queue_.push_back({std::move(current_), size, written_, skip});
  current_ = AlignedBuffer();
  ++unwritten_;
  written_ += filled_;
  filled_ = 0;
  changed_.NotifyAll();
  while (free_.empty()) changed_.Wait(mutex_);
  current_ = std::move(free_.back());
  free_.pop_back();
  return error_;
}

absl::Status OutputFile::WaitForWrites() {
  MutexLock lock(mutex_);
  while (unwritten_ > 0) changed_.Wait(mutex_);
  return error_;
}

absl::Status OutputFile::Append(std::string_view bytes) {
  if (object_ != nullptr) return object_->Append(bytes);
  while (!bytes.empty()) {
    const size_t taken = std::min(bytes.size(), buffer_bytes_ - filled_);
    std::memcpy(current_.data() + filled_, bytes.data(), taken);
    filled_ += taken;
    bytes.remove_prefix(taken);
    if (filled_ == buffer_bytes_) CAIRN_RETURN_IF_ERROR(SubmitBuffer());
  }
  return absl::OkStatus();
}

absl::StatusOr<OutputFile::Position> OutputFile::Checkpoint() {
  CAIRN_RETURN_IF_ERROR(WaitForWrites());
  if (fdatasync(fd_.get()) != 0) return OutputError("fsync", partial_path_, errno);
  return Position{written_, std::string(current_.data(), filled_)};
}

absl::Status OutputFile::Finish() {
  if (object_ != nullptr) return object_->Finish();
  if (finished_) return absl::OkStatus();
  if (filled_ > 0) {
    const size_t padded = RoundUpToIo(filled_);
    std::memset(current_.data() + filled_, 0, padded - filled_);
    CAIRN_RETURN_IF_ERROR(SubmitBuffer());
  }
  CAIRN_RETURN_IF_ERROR(WaitForWrites());
  finished_ = stream();
  if (finished_) return absl::OkStatus();
  if (!shared() && ftruncate(fd_.get(), static_cast<off_t>(written_)) != 0)
    return OutputError("truncate", partial_path_, errno);
  if (fsync(fd_.get()) != 0) return OutputError("fsync", partial_path_, errno);
  finished_ = true;
  return absl::OkStatus();
}

absl::Status OutputFile::Publish() {
  if (object_ != nullptr) return object_->Publish();
  CAIRN_RETURN_IF_ERROR(Finish());
  if (stream()) return absl::OkStatus();
  CAIRN_RETURN_IF_ERROR(PublishFile(partial_path_, path_, AtomicWriteOptions::Durable::kBytes));
  committed_ = true;
  return absl::OkStatus();
}

absl::Status OutputFile::Commit() {
  CAIRN_RETURN_IF_ERROR(Publish());
  return stream() ? absl::OkStatus() : SyncDirectoryOf(path_);
}

}  // namespace cairn::corpus

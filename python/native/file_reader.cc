#include "python/native/file_reader.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <new>
#include <utility>

#include "common/file/unique_fd.h"
#include "common/resources/aligned_buffer.h"
#include "common/resources/thread.h"

namespace cairn {
namespace {

using Kind = FileReadOutcome::Kind;

// A piece that is smaller is not worth a direct read.
constexpr int64_t kLeastDirectBytes = int64_t{64} << 10;
// If the bytes are in the page cache, a gap of so many is cheaper to leave out, by one more call, than to copy.
constexpr int64_t kSkippedGap = 4096;
constexpr int64_t kAlignment = static_cast<int64_t>(kIoAlignment);

int64_t RoundDown(int64_t number) { return number / kAlignment * kAlignment; }
int64_t RoundUp(int64_t number) { return RoundDown(number + kAlignment - 1); }

// What an attempt to read has come to.
struct Result {
  Kind kind = Kind::kDone;
  int error = 0;
  bool ok() const { return kind == Kind::kDone; }
};

Result Failed(int error) { return {Kind::kErrno, error}; }

// Fills `parts` from `offset` on. It changes them.
Result ReadInto(int fd, std::vector<iovec>& parts, int64_t offset) {
  for (size_t first = 0; first < parts.size();) {
    const ssize_t got = preadv(fd, parts.data() + first, static_cast<int>(parts.size() - first), offset);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return Failed(errno);
    if (got == 0) return {Kind::kTruncated};
    offset += got;
    for (size_t left = static_cast<size_t>(got); left > 0;) {
      iovec& part = parts[first];
      const size_t taken = std::min(left, part.iov_len);
      part.iov_base = static_cast<char*>(part.iov_base) + taken;
      part.iov_len -= taken;
      left -= taken;
      if (part.iov_len == 0) ++first;
    }
  }
  return {};
}

Result ReadInto(int fd, void* to, int64_t bytes, int64_t offset) {
  while (bytes > 0) {
    const ssize_t got = pread(fd, to, static_cast<size_t>(bytes), offset);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return Failed(errno);
    if (got == 0) return {Kind::kTruncated};
    to = static_cast<char*>(to) + got;
    bytes -= got;
    offset += got;
  }
  return {};
}

// Reads past the page cache. `to`, `bytes` and `offset` are aligned; only `needed` bytes must be there, because the
// file may end behind them.
Result ReadDirect(int fd, char* to, int64_t bytes, int64_t offset, int64_t needed) {
  for (int64_t done = 0; done < needed;) {
    const int64_t begin = RoundDown(done);  // a direct read begins at a block
    const ssize_t got = pread(fd, to + begin, static_cast<size_t>(bytes - begin), offset + begin);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return Failed(errno);
    if (begin + got <= done) return {Kind::kTruncated};
    done = begin + got;
  }
  return {};
}

// Has the signature of cachestat(2), which the C library does not know yet.
struct CacheRange {
  uint64_t offset, bytes;
};
struct CacheStatistics {
  uint64_t cached, dirty, writeback, evicted, recently_evicted;
};
constexpr long kCachestat = 451;

// Returns true if all bytes are in the page cache. It may take a range for resident that is not, or the reverse: only
// speed depends on it.
bool IsResident(int fd, int64_t offset, int64_t bytes) {
  const int64_t page = sysconf(_SC_PAGESIZE);
  CacheRange range = {static_cast<uint64_t>(offset), static_cast<uint64_t>(bytes)};
  CacheStatistics statistics = {};
  if (syscall(kCachestat, fd, &range, &statistics, 0) == 0) {
    const int64_t pages = (offset + bytes - 1) / page - offset / page + 1;
    return statistics.cached >= static_cast<uint64_t>(pages);
  }
  // The kernel is older than 6.5, or this user may not ask: look at the first and the last page. A kernel may begin to
  // read a page that it does not have, so no more are asked for.
  for (const int64_t at : {offset, offset + bytes - 1}) {
    char byte;
    iovec part = {&byte, 1};
    if (preadv2(fd, &part, 1, at, RWF_NOWAIT) != 1) return false;
  }
  return true;
}

}  // namespace

// A file while some of its pieces are to be read. Thread-safe.
struct FileRead::OpenFile {
  OpenFile(Source from, size_t pieces) : source(std::move(from)), left(pieces) {}

  const Source source;
  std::atomic<size_t> left;  // pieces that are not done
  std::atomic<bool> direct_refused = false;

  // Returns a descriptor that stays open while the caller has a piece of the file; -1 and the result if there is none.
  int Open(Result& result) {
    const MutexLock lock(mutex_);
    if (!buffered_.valid()) result = OpenBuffered();
    return buffered_.get();
  }

  // The same for direct reads. It returns -1 if they are not possible.
  int OpenDirect() {
    if (direct_refused) return -1;
    const MutexLock lock(mutex_);
    if (!direct_.valid()) direct_ = UniqueFd(open(source.path.c_str(), O_RDONLY | O_CLOEXEC | O_DIRECT | O_NONBLOCK));
    if (!direct_.valid()) direct_refused = true;
    return direct_.get();
  }

  // Takes note that a piece is done. Closes the file after the last one.
  void Done() {
    if (--left > 0) return;
    const MutexLock lock(mutex_);
    buffered_ = UniqueFd();
    direct_ = UniqueFd();
  }

 private:
  Result OpenBuffered() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    UniqueFd fd(open(source.path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));  // a pipe must not hold us up
    if (!fd.valid()) return Failed(errno);
    struct stat about = {};
    if (fstat(fd.get(), &about) != 0) return Failed(errno);
    if (!S_ISREG(about.st_mode)) return {Kind::kNotRegular};
    if (about.st_size != source.bytes) return {Kind::kTruncated};
    // The kernel then reads as much as a call asks for in one go, and nothing else. Its guesses about what comes next
    // are wrong when several threads read one file.
    posix_fadvise(fd.get(), 0, 0, POSIX_FADV_RANDOM);
    buffered_ = std::move(fd);
    return {};
  }

  Mutex mutex_;
  UniqueFd buffered_ ABSL_GUARDED_BY(mutex_);
  UniqueFd direct_ ABSL_GUARDED_BY(mutex_);
};

// Reads pieces on one thread.
class FileRead::Reader {
 public:
  // Throws std::bad_alloc.
  explicit Reader(FileRead& read) : read_(read), bounce_(static_cast<size_t>(kBounceBytes + 2 * kAlignment)) {}

  Result Read(const FilePiece& piece) {
    OpenFile& file = *read_.files_[piece.file];
    Result opened;
    const int fd = file.Open(opened);
    if (!opened.ok()) return opened;
    const bool resident = IsResident(fd, piece.offset, piece.bytes);
    if (!resident && !read_.shared_ && piece.bytes >= kLeastDirectBytes) {
      if (const int direct = file.OpenDirect(); direct >= 0) {
        const Result result = Direct(direct, piece);
        if (result.kind != Kind::kErrno || result.error != EINVAL) {
          read_.direct_bytes_ += piece.bytes;
          return result;
        }
        file.direct_refused = true;  // some file systems refuse the read, and not the flag
      }
    }
    (resident ? read_.cached_bytes_ : read_.buffered_bytes_) += piece.bytes;
    return Buffered(fd, piece, resident);
  }

 private:
  Result Buffered(int fd, const FilePiece& piece, bool resident) {
    if (piece.straight()) return ReadInto(fd, piece.copies[0].copy.target, piece.bytes, piece.offset);
    if (piece.gathered()) {
      parts_.clear();
      for (const FilePiece::Copy& each : piece.copies) {
        parts_.push_back({each.copy.target, static_cast<size_t>(each.copy.element_bytes)});
      }
      return ReadInto(fd, parts_, piece.offset);
    }
    if (resident && SkipsGaps(piece)) {
      const TiledCopy& copy = piece.copies[0].copy;
      return ReadRuns(fd, copy, piece.offset, copy.target, 0);
    }
    const Result result = ReadInto(fd, bounce_.data(), piece.bytes, piece.offset);
    if (result.ok()) CopyOut(piece, bounce_.data());
    return result;
  }

  // Returns true if it is cheaper to read what is wanted run by run.
  static bool SkipsGaps(const FilePiece& piece) {
    if (piece.copies.size() != 1) return false;
    const TiledCopy& copy = piece.copies[0].copy;
    return piece.bytes - copy.source_bytes() >= kSkippedGap * copy.elements();
  }

  Result ReadRuns(int fd, const TiledCopy& copy, int64_t offset, std::byte* target, size_t depth) {
    if (depth == copy.dimensions.size()) return ReadInto(fd, target, copy.element_bytes, offset);
    const TiledCopy::Dimension& d = copy.dimensions[depth];
    for (int64_t i = 0; i < d.extent; ++i) {
      const Result result = ReadRuns(fd, copy, offset + i * d.source_stride, target + i * d.target_stride, depth + 1);
      if (!result.ok()) return result;
    }
    return {};
  }

  Result Direct(int fd, const FilePiece& piece) {
    if (!piece.straight())
      return ThroughBounce(fd, piece.offset, piece.end(),
                           [&](const char* bytes, int64_t, int64_t) { CopyOut(piece, bytes); });
    std::byte* const target = piece.copies[0].copy.target;
    const auto copy_out = [&](const char* bytes, int64_t begin, int64_t end) {
      std::memcpy(target + (begin - piece.offset), bytes, static_cast<size_t>(end - begin));
    };
    const int64_t begin = RoundUp(piece.offset);
    const int64_t end = RoundDown(piece.end());
    char* const body = reinterpret_cast<char*>(target) + (begin - piece.offset);
    if (reinterpret_cast<uintptr_t>(body) % kIoAlignment != 0 || begin >= end) {
      return ThroughBounce(fd, piece.offset, piece.end(), copy_out);
    }
    Result result = ReadDirect(fd, body, end - begin, begin, end - begin);
    if (result.ok()) result = ThroughBounce(fd, piece.offset, begin, copy_out);
    if (result.ok()) result = ThroughBounce(fd, end, piece.end(), copy_out);
    return result;
  }

  // Reads [begin, end) in parts that fit the buffer. `take` gets the bytes of each part, where it begins and ends.
  template <typename Take>
  Result ThroughBounce(int fd, int64_t begin, int64_t end, const Take& take) {
    while (begin < end) {
      const int64_t block = RoundDown(begin);
      const int64_t part = std::min(end, block + static_cast<int64_t>(bounce_.size()));
      const Result result = ReadDirect(fd, bounce_.data(), RoundUp(part) - block, block, part - block);
      if (!result.ok()) return result;
      take(bounce_.data() + (begin - block), begin, part);
      begin = part;
    }
    return {};
  }

  static void CopyOut(const FilePiece& piece, const char* bytes) {
    for (const FilePiece::Copy& each : piece.copies) {
      TiledCopy copy = each.copy;
      copy.source = reinterpret_cast<const std::byte*>(bytes) + each.offset;
      Execute(copy);
    }
  }

  FileRead& read_;
  AlignedBuffer bounce_;
  std::vector<iovec> parts_;
};

FileRead::~FileRead() = default;

std::shared_ptr<FileRead> FileRead::Begin(const std::vector<Source>& files, std::vector<FilePiece> pieces, int threads,
                                          bool shared) {
  const std::shared_ptr<FileRead> read(new FileRead());
  std::vector<size_t> pieces_of(files.size());
  for (const FilePiece& piece : pieces) ++pieces_of[piece.file];
  for (size_t i = 0; i < files.size(); ++i) read->files_.push_back(std::make_unique<OpenFile>(files[i], pieces_of[i]));
  read->pieces_ = std::move(pieces);
  read->shared_ = shared;
  const auto useful = std::min(static_cast<size_t>(std::max(threads, 1)), read->pieces_.size());
  for (size_t i = 0; i < useful; ++i) read->current_.emplace_back(read->pieces_.size());
  for (size_t i = 0; i < useful; ++i) {
    {
      const MutexLock lock(read->mutex_);
      ++read->running_;
    }
    auto thread = StartThread("to read files", [read, i] { read->RunThread(i); });
    if (thread.ok()) {
      thread->detach();
      continue;
    }
    if (i == 0) read->Fail(Kind::kNoMemory, 0, 0, 0);
    const MutexLock lock(read->mutex_);
    --read->running_;
    break;
  }
  return read;
}

void FileRead::RunThread(size_t thread) {
  try {
    Reader reader(*this);
    while (!stop_) {
      const size_t number = next_++;
      if (number >= pieces_.size()) break;
      const FilePiece& piece = pieces_[number];
      current_[thread] = number;
      const Result result = reader.Read(piece);
      current_[thread] = pieces_.size();
      if (!result.ok()) Fail(result.kind, result.error, piece.file, piece.offset);
      files_[piece.file]->Done();
    }
  } catch (const std::bad_alloc&) {
    Fail(Kind::kNoMemory, 0, 0, 0);
  }
  const MutexLock lock(mutex_);
  if (--running_ == 0) ended_.NotifyAll();
}

void FileRead::Fail(Kind kind, int error, size_t file, int64_t offset) {
  stop_ = true;
  const MutexLock lock(mutex_);
  if (failure_.kind != Kind::kDone) return;
  failure_.kind = kind;
  failure_.error = error;
  failure_.file = file;
  failure_.offset = offset;
}

void FileRead::Cancel() {
  if (next_ < pieces_.size()) Fail(Kind::kCancelled, 0, 0, 0);
}

FileReadOutcome FileRead::Wait(absl::Duration timeout) {
  const auto deadline = std::chrono::steady_clock::now() + absl::ToChronoNanoseconds(timeout);
  FileReadOutcome outcome;
  {
    const MutexLock lock(mutex_);
    while (running_ > 0 && ended_.WaitFor(mutex_, absl::FromChrono(deadline - std::chrono::steady_clock::now()))) {
    }
    outcome = failure_;
    if (running_ > 0) outcome.kind = Kind::kRunning;
  }
  outcome.cached_bytes = cached_bytes_;
  outcome.buffered_bytes = buffered_bytes_;
  outcome.direct_bytes = direct_bytes_;
  if (outcome.kind != Kind::kRunning) return outcome;
  size_t first = pieces_.size();
  for (const std::atomic<size_t>& number : current_) first = std::min(first, number.load());
  if (first == pieces_.size()) return outcome;
  outcome.file = pieces_[first].file;
  outcome.offset = pieces_[first].offset;
  return outcome;
}

}  // namespace cairn

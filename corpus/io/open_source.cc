#include "corpus/io/open_source.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/file/unique_fd.h"
#include "common/resources/aligned_buffer.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "corpus/io/decoder.h"
#include "corpus/io/errno_status.h"
#include "corpus/io/object_source.h"
#include "corpus/io/object_stores.h"
#include "corpus/io/table_source.h"
#include "corpus/io/tar_source.h"

namespace cairn::corpus {
namespace {

constexpr size_t kTailBytes = 64 << 10;
constexpr int kPollMilliseconds = 100;

absl::Status StopStatus(const std::atomic<bool>* stop) {
  if (stop == nullptr || !stop->load(std::memory_order_relaxed)) return absl::OkStatus();
  return MakeError(Reason::kInterrupted, "interrupted");
}

class PlainSource final : public ByteSource {
 public:
  PlainSource(std::string path, UniqueFd fd, bool direct, uint64_t begin, uint64_t soft_end,
              const SourceOptions& options)
      : path_(std::move(path)),
        fd_(std::move(fd)),
        direct_(direct),
        offset_(begin),
        soft_end_(soft_end),
        stop_(options.stop),
        file_bytes_(options.file_bytes) {}

  absl::StatusOr<size_t> Read(char* buffer, size_t size) override {
    CAIRN_RETURN_IF_ERROR(StopStatus(stop_));
    if (ended_) return 0;
    if (offset_ >= soft_end_) {
      size = std::min(size, kTailBytes);
    } else if (soft_end_ - offset_ < size) {
      size = std::min(size, RoundUpToIo(soft_end_ - offset_ + 1));
    }
    // A direct read begins at a multiple of the alignment. The bytes before the wanted one are dropped.
    const size_t skip = offset_ % kIoAlignment;
    ssize_t count;
    while (true) {
      count = pread(fd_.get(), buffer, size, static_cast<off_t>(offset_ - skip));
      if (count < 0 && errno == EINTR) {
        CAIRN_RETURN_IF_ERROR(StopStatus(stop_));
        continue;
      }
      if (count < 0 && errno == EINVAL && direct_) {
        direct_ = false;
        if (fcntl(fd_.get(), F_SETFL, fcntl(fd_.get(), F_GETFL) & ~O_DIRECT) == 0) continue;
      }
      break;
    }
    if (count < 0) return InputError("read", path_, errno);
    if (static_cast<size_t>(count) <= skip) {
      ended_ = true;
      return 0;
    }
    const size_t useful = static_cast<size_t>(count) - skip;
    if (skip > 0) std::memmove(buffer, buffer + skip, useful);
    offset_ += useful;
    if (file_bytes_ != nullptr) *file_bytes_ += useful;
    return useful;
  }
  bool direct() const override { return direct_; }

 private:
  const std::string path_;
  const UniqueFd fd_;
  bool direct_;
  uint64_t offset_;
  const uint64_t soft_end_;
  const std::atomic<bool>* const stop_;
  std::atomic<uint64_t>* const file_bytes_;
  bool ended_ = false;
};

// Reads standard input, FIFOs and devices, which have no offsets and whose reads may wait for ever.
class PipeSource final : public ByteSource {
 public:
  // Reads standard input if there is no `owned`.
  PipeSource(std::string path, UniqueFd owned, const SourceOptions& options)
      : path_(std::move(path)),
        owned_(std::move(owned)),
        fd_(owned_.valid() ? owned_.get() : STDIN_FILENO),
        stop_(options.stop),
        file_bytes_(options.file_bytes) {}

  absl::StatusOr<size_t> Read(char* buffer, size_t size) override {
    while (true) {
      CAIRN_RETURN_IF_ERROR(StopStatus(stop_));
      pollfd waiting{fd_, POLLIN, 0};
      const int ready = poll(&waiting, 1, kPollMilliseconds);
      if (ready == 0 || (ready < 0 && errno == EINTR)) continue;
      const ssize_t count = read(fd_, buffer, size);
      if (count >= 0 && file_bytes_ != nullptr) *file_bytes_ += static_cast<uint64_t>(count);
      if (count >= 0) return static_cast<size_t>(count);
      if (errno != EINTR && errno != EAGAIN) return InputError("read", path_, errno);
    }
  }

 private:
  const std::string path_;
  const UniqueFd owned_;
  const int fd_;
  const std::atomic<bool>* const stop_;
  std::atomic<uint64_t>* const file_bytes_;
};

class SkippingSource final : public ByteSource {
 public:
  SkippingSource(std::unique_ptr<ByteSource> source, uint64_t bytes) : source_(std::move(source)), skip_(bytes) {}
  absl::StatusOr<size_t> Read(char* buffer, size_t size) override {
    while (true) {
      CAIRN_ASSIGN_OR_RETURN(const size_t count, source_->Read(buffer, size));
      if (skip_ == 0 || count == 0) return count;
      const size_t dropped = static_cast<size_t>(std::min<uint64_t>(skip_, count));
      skip_ -= dropped;
      if (dropped == count) continue;
      std::memmove(buffer, buffer + dropped, count - dropped);
      return count - dropped;
    }
  }
  bool direct() const override { return source_->direct(); }

 private:
  const std::unique_ptr<ByteSource> source_;
  uint64_t skip_;
};

// Where the caller has closed it, its number is that of something which this process has made for itself, and a read of
// that would wait forever. Such things are of no kind.
absl::Status CheckStandardInput() {
  struct stat found;
  if (fstat(STDIN_FILENO, &found) == 0 && (found.st_mode & S_IFMT) != 0) return absl::OkStatus();
  return MakeError(
      Reason::kInputUnreadable, "standard input is closed",
      {{"next", "Give the command an input: a file in place of -, or a pipe or file to its standard input."}});
}

}  // namespace

std::unique_ptr<ByteSource> SkipBytes(std::unique_ptr<ByteSource> source, uint64_t bytes) {
  return std::make_unique<SkippingSource>(std::move(source), bytes);
}

Compression CompressionOf(const std::string& path) {
  const std::string name = absl::AsciiStrToLower(path);
  if (absl::EndsWith(name, ".gz")) return Compression::kGzip;
  if (absl::EndsWith(name, ".zst") || absl::EndsWith(name, ".zstd")) return Compression::kZstd;
  if (absl::EndsWith(name, ".xz")) return Compression::kXz;
  return Compression::kNone;
}

bool IsTable(const std::string& path) {
  const std::string name = absl::AsciiStrToLower(path);
  return absl::EndsWith(name, ".parquet") || absl::EndsWith(name, ".arrow") || absl::EndsWith(name, ".feather");
}

bool IsTar(const std::string& path) {
  const std::string name = absl::AsciiStrToLower(path);
  return absl::EndsWith(CompressionOf(name) == Compression::kNone ? name : name.substr(0, name.rfind('.')), ".tar");
}

int TableReadersFor(int threads) { return std::clamp(threads / 2, 1, 16); }

bool IsReadAsItIs(const std::string& path) {
  return CompressionOf(path) == Compression::kNone && !IsTable(path) && !IsTar(path);
}

absl::StatusOr<std::unique_ptr<ByteSource>> OpenPlainSource(const std::string& path, uint64_t begin, uint64_t soft_end,
                                                            const SourceOptions& options) {
  if (ObjectStores* const stores = StoresOf(path)) return OpenObjectSource(*stores, path, begin, soft_end, options);
  bool direct = options.direct;
  UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | (direct ? O_DIRECT : 0)));
  if (!fd.valid() && errno == EINVAL && direct) {
    direct = false;
    fd = UniqueFd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  }
  if (!fd.valid()) return InputError("open", path, errno);
  struct stat found;
  if (fstat(fd.get(), &found) != 0 || S_ISDIR(found.st_mode)) return InputError("read", path, EISDIR);
  if (!S_ISREG(found.st_mode)) {
    if (direct) fcntl(fd.get(), F_SETFL, fcntl(fd.get(), F_GETFL) & ~O_DIRECT);
    return std::make_unique<PipeSource>(path, std::move(fd), options);
  }
  if (!direct) posix_fadvise(fd.get(), 0, 0, POSIX_FADV_SEQUENTIAL);
  return std::make_unique<PlainSource>(path, std::move(fd), direct, begin, soft_end, options);
}

absl::StatusOr<std::unique_ptr<ByteSource>> OpenSource(const std::string& path, const SourceOptions& options) {
  if (path == "-") {
    CAIRN_RETURN_IF_ERROR(CheckStandardInput());
    return std::make_unique<PipeSource>("standard input", UniqueFd(), options);
  }
  if (IsTable(path)) return OpenTableSource(path, options);
  CAIRN_ASSIGN_OR_RETURN(auto source, OpenPlainSource(path, 0, UINT64_MAX, options));
  switch (CompressionOf(path)) {
    case Compression::kGzip:
      source = NewGzipSource(path, std::move(source));
      break;
    case Compression::kZstd:
      source = NewZstdSource(path, std::move(source), options.max_window);
      break;
    case Compression::kXz: {
      CAIRN_ASSIGN_OR_RETURN(source, NewXzSource(path, std::move(source), options.max_window));
      break;
    }
    case Compression::kNone:
      break;
  }
  if (IsTar(path)) return NewTarSource(path, std::move(source));
  return source;
}

}  // namespace cairn::corpus

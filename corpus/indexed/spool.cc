#include "corpus/indexed/spool.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <utility>

#include "common/status/status.h"
#include "corpus/io/errno_status.h"

namespace cairn::corpus {
namespace {

constexpr size_t kBufferBytes = 256 << 10;

// O_TMPFILE where the file system has it, else a file that loses its name at once.
int OpenNameless(const std::string& directory) {
  const int fd = open(directory.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL)) return fd;
  std::string name = directory + "/.cairn-XXXXXX";
  const int named = mkostemp(name.data(), O_CLOEXEC);
  if (named >= 0) unlink(name.c_str());
  return named;
}

}  // namespace

Spool::Spool(Spool&& other) noexcept
    : directory_(std::move(other.directory_)),
      fd_(std::exchange(other.fd_, -1)),
      spilled_(std::exchange(other.spilled_, 0)),
      buffer_(std::move(other.buffer_)) {}

Spool::~Spool() {
  if (fd_ >= 0) close(fd_);
}

absl::Status Spool::Spill() {
  if (fd_ < 0) {
    fd_ = OpenNameless(directory_);
    if (fd_ < 0) return OutputError("create a temporary file in", directory_, errno);
  }
  size_t done = 0;
  while (done < buffer_.size()) {
    const ssize_t count =
        pwrite(fd_, buffer_.data() + done, buffer_.size() - done, static_cast<off_t>(spilled_ + done));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return OutputError("write a temporary file in", directory_, count == 0 ? ENOSPC : errno);
    done += static_cast<size_t>(count);
  }
  spilled_ += done;
  buffer_.clear();
  return absl::OkStatus();
}

absl::Status Spool::Append(std::string_view bytes) {
  // Whole buffers alone are spilled, so that pieces read back are multiples of 8.
  while (!bytes.empty()) {
    const size_t taken = std::min(bytes.size(), kBufferBytes - buffer_.size());
    buffer_.append(bytes.substr(0, taken));
    bytes.remove_prefix(taken);
    if (buffer_.size() == kBufferBytes) CAIRN_RETURN_IF_ERROR(Spill());
  }
  return absl::OkStatus();
}

absl::Status Spool::Read(absl::FunctionRef<absl::Status(std::string_view)> visitor) {
  std::string piece(std::min<uint64_t>(spilled_, kBufferBytes), '\0');
  for (uint64_t offset = 0; offset < spilled_; offset += piece.size()) {
    size_t done = 0;
    while (done < piece.size()) {
      const ssize_t count = pread(fd_, piece.data() + done, piece.size() - done, static_cast<off_t>(offset + done));
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) return OutputError("read back a temporary file in", directory_, count == 0 ? EIO : errno);
      done += static_cast<size_t>(count);
    }
    CAIRN_RETURN_IF_ERROR(visitor(piece));
  }
  return buffer_.empty() ? absl::OkStatus() : visitor(buffer_);
}

}  // namespace cairn::corpus

#include "corpus/indexed/spool.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "common/file/full_transfer.h"
#include "common/status/status.h"
#include "corpus/io/errno_status.h"
#include "corpus/io/nameless_file.h"

namespace cairn::corpus {
namespace {

constexpr size_t kBufferBytes = 256 << 10;

}  // namespace

Spool::Spool(Spool&& other) noexcept
    : directory_(std::move(other.directory_)),
      fd_(std::move(other.fd_)),
      spilled_(std::exchange(other.spilled_, 0)),
      buffer_(std::move(other.buffer_)) {}

absl::Status Spool::Spill() {
  if (!fd_.valid()) {
    fd_ = OpenNameless(directory_, 0);
    if (!fd_.valid()) return OutputError("create a temporary file in", directory_, errno);
  }
  if (const int error = WriteFullyAt(fd_.get(), buffer_, spilled_); error != 0) {
    return OutputError("write a temporary file in", directory_, error);
  }
  spilled_ += buffer_.size();
  buffer_.clear();
  return absl::OkStatus();
}

absl::Status Spool::Append(std::string_view bytes) {
  // Only whole buffers are spilled, so the pieces that are read back are multiples of 8 bytes.
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
    size_t got = 0;
    const int error = ReadFullyAt(fd_.get(), piece.data(), piece.size(), offset, got);
    if (error != 0 || got < piece.size()) {
      return OutputError("read back a temporary file in", directory_, error != 0 ? error : EIO);
    }
    CAIRN_RETURN_IF_ERROR(visitor(piece));
  }
  return buffer_.empty() ? absl::OkStatus() : visitor(buffer_);
}

}  // namespace cairn::corpus

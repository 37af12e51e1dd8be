#include "foreign/write/window_stream.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/crc32c.h"
#include "common/file/direct_io.h"
#include "common/file/errno_error.h"
#include "common/resources/memory.h"
#include "common/resources/thread.h"
#include "common/status/status.h"

namespace cairn {
namespace {

// The size of one write.
constexpr uint64_t kPieceBytes = uint64_t{8} << 20;
// Enough threads that the disk always has writes to do.
constexpr int kThreads = 2;

}  // namespace

absl::Status WindowStream::Allocate(uint64_t window_bytes) {
  return WithMemory(absl::StrCat("for two buffers of ", window_bytes, " bytes; lower --memory"), [&] {
    // Bytes of a window behind its last whole block go to the begin of the next window.
    for (AlignedBuffer& window : windows_) window = AlignedBuffer(window_bytes + kIoAlignment);
    return absl::OkStatus();
  });
}

void WindowStream::Begin(int fd, std::string name, uint64_t bytes) {
  fd_ = fd;
  name_ = std::move(name);
  origin_ = filled_ = 0;
  crc32c_ = 0;
  // A smaller file has no whole block to try direct I/O with.
  if (bytes >= kIoAlignment) BeginDirectIo(fd);
}

absl::Status WindowStream::Flush() {
  const char* const bytes = data();
  const uint64_t offset = origin_, size = filled_ / kIoAlignment * kIoAlignment, rest = filled_ - size;
  // The previous window must be written before the rest goes into its memory.
  CAIRN_RETURN_IF_ERROR(background_.Wait());
  active_ = 1 - active_;
  std::memcpy(data(), bytes + size, rest);
  origin_ += size;
  filled_ = rest;
  if (size == 0) return absl::OkStatus();
  return background_.Start([=, this] { return WritePieces(offset, bytes, size); });
}

absl::Status WindowStream::End() {
  CAIRN_RETURN_IF_ERROR(Flush());
  CAIRN_RETURN_IF_ERROR(background_.Wait());
  if (filled_ == 0) return absl::OkStatus();
  crc32c_ = ExtendCrc32c(crc32c_, data(), filled_);
  if (const int error = EndDirectIo(fd_); error != 0) return ErrnoError(error, "set up", name_);
  return output_.Write(fd_, name_, origin_, {data(), filled_});
}

absl::Status WindowStream::WritePieces(uint64_t offset, const char* bytes, uint64_t size) {
  std::vector<uint32_t> checksums((size + kPieceBytes - 1) / kPieceBytes);
  CAIRN_RETURN_IF_ERROR(ForEachOnThreads("to write an export", checksums.size(), kThreads, [&](size_t i, int) {
    const uint64_t at = i * kPieceBytes;
    const std::string_view piece(bytes + at, std::min(kPieceBytes, size - at));
    checksums[i] = Crc32c(piece.data(), piece.size());
    return output_.Write(fd_, name_, offset + at, piece);
  }));
  for (uint64_t at = 0; at < size; at += kPieceBytes) {
    crc32c_ = CombineCrc32c(crc32c_, checksums[at / kPieceBytes], std::min(kPieceBytes, size - at));
  }
  return absl::OkStatus();
}

}  // namespace cairn

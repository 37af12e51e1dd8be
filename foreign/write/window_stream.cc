#include "foreign/write/window_stream.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/crc32c.h"
#include "common/resources/memory.h"
#include "common/resources/thread.h"
#include "common/status/status.h"

namespace cairn {
namespace {

// Enough threads that storage always has writes to do.
constexpr int kThreads = 4;

}  // namespace

absl::Status WindowStream::Allocate(uint64_t window_bytes, uint64_t step) {
  step_ = step;
  return WithMemory(absl::StrCat("for two buffers of ", window_bytes, " bytes; lower --memory"), [&] {
    // Bytes of a window behind its last whole step go to the begin of the next window.
    for (AlignedBuffer& window : windows_) window = AlignedBuffer(window_bytes + step);
    return absl::OkStatus();
  });
}

void WindowStream::Begin(OutputFile& file) {
  file_ = &file;
  origin_ = filled_ = 0;
  crc32c_ = 0;
}

absl::Status WindowStream::Flush() {
  const char* const bytes = data();
  const uint64_t offset = origin_, size = filled_ / step_ * step_, rest = filled_ - size;
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
  return file_->Write(origin_, {data(), filled_});
}

absl::Status WindowStream::WritePieces(uint64_t offset, const char* bytes, uint64_t size) {
  std::vector<uint32_t> checksums((size + kOutputPieceBytes - 1) / kOutputPieceBytes);
  CAIRN_RETURN_IF_ERROR(ForEachOnThreads("to write an export", checksums.size(), kThreads, [&](size_t i, int) {
    const uint64_t at = i * kOutputPieceBytes;
    const std::string_view piece(bytes + at, std::min(kOutputPieceBytes, size - at));
    checksums[i] = Crc32c(piece.data(), piece.size());
    return file_->Write(offset + at, piece);
  }));
  for (uint64_t at = 0; at < size; at += kOutputPieceBytes) {
    crc32c_ = CombineCrc32c(crc32c_, checksums[at / kOutputPieceBytes], std::min(kOutputPieceBytes, size - at));
  }
  return absl::OkStatus();
}

}  // namespace cairn

#include "corpus/sft/sample_file.h"

#include <algorithm>
#include <cerrno>
#include <string_view>

#include "common/file/full_transfer.h"
#include "common/status/status.h"
#include "corpus/io/errno_status.h"
#include "corpus/io/nameless_file.h"

namespace cairn::corpus {
namespace {

constexpr size_t kBufferTokens = size_t{1} << 18;
constexpr uint64_t kTokenBytes = sizeof(uint32_t);

}  // namespace

absl::Status SampleFile::Spill() {
  if (!fd_.valid()) {
    fd_ = OpenNameless(directory_, 0);
    if (!fd_.valid()) return OutputError("create a temporary file in", directory_, errno);
  }
  const std::string_view bytes(reinterpret_cast<const char*>(buffer_.data()), buffer_.size() * kTokenBytes);
  if (const int error = WriteFullyAt(fd_.get(), bytes, spilled_ * kTokenBytes); error != 0) {
    return OutputError("write a temporary file in", directory_, error);
  }
  spilled_ += buffer_.size();
  buffer_.clear();
  return absl::OkStatus();
}

absl::Status SampleFile::Append(const uint32_t* tokens, size_t count) {
  while (count > 0) {
    const size_t taken = std::min(count, kBufferTokens - buffer_.size());
    buffer_.insert(buffer_.end(), tokens, tokens + taken);
    tokens += taken;
    count -= taken;
    if (buffer_.size() == kBufferTokens) CAIRN_RETURN_IF_ERROR(Spill());
  }
  return absl::OkStatus();
}

absl::Status SampleFile::Read(uint64_t first, std::vector<uint32_t>& tokens) {
  const auto from_file = static_cast<size_t>(std::min<uint64_t>(tokens.size(), spilled_ - std::min(spilled_, first)));
  if (from_file > 0) {
    size_t got = 0;
    const int error = ReadFullyAt(fd_.get(), tokens.data(), from_file * kTokenBytes, first * kTokenBytes, got);
    if (error != 0 || got < from_file * kTokenBytes) {
      return OutputError("read back a temporary file in", directory_, error != 0 ? error : EIO);
    }
  }
  const uint64_t in_buffer = std::max(first, spilled_) - spilled_;
  std::copy_n(buffer_.begin() + static_cast<ptrdiff_t>(in_buffer), tokens.size() - from_file,
              tokens.begin() + static_cast<ptrdiff_t>(from_file));
  return absl::OkStatus();
}

}  // namespace cairn::corpus

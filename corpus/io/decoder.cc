#include "corpus/io/decoder.h"

#include <isa-l/igzip_lib.h>
#include <zstd.h>
#include <zstd_errors.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/resources/aligned_buffer.h"
#include "common/resources/memory.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "corpus/io/xz_library.h"

namespace cairn::corpus {
namespace {

constexpr size_t kInputBytes = 256 << 10;
// What liblzma takes beside the dictionary.
constexpr uint64_t kXzState = uint64_t{2} << 20;

absl::Status WindowTooLarge(const std::string& path, size_t max_window) {
  return MakeError(Reason::kMemoryLimit,
                   absl::StrCat(path, " was compressed with a window above ", max_window,
                                " bytes, the most that this memory budget allows"),
                   {{"file", path}});
}

absl::Status Damaged(const std::string& path, std::string_view what, uint64_t offset) {
  return MakeError(
      Reason::kInputUnreadable,
      absl::StrCat(path, " is damaged: ", std::string(what), " near byte ", offset, " of the compressed file"),
      {{"file", path}});
}

// Returns the error of a file that does not begin as its ending says, most often because it was never compressed.
absl::Status NotCompressed(const std::string& path, std::string_view format) {
  const size_t dot = path.rfind('.');
  const std::string ending = dot == std::string::npos ? "" : path.substr(dot);
  return MakeError(Reason::kInputUnreadable,
                   absl::StrCat(path, " is not compressed: no ", std::string(format),
                                " data begin there, though its name ends in ", ending),
                   {{"file", path},
                    {"next", absl::StrCat("Rename it without ", ending,
                                          " if it is plain text, or with the ending of what it is.")}});
}

class GzipSource final : public ByteSource {
 public:
  GzipSource(std::string path, std::unique_ptr<ByteSource> raw)
      : path_(std::move(path)), raw_(std::move(raw)), input_(kInputBytes), state_(new inflate_state) {
    StartMember();
  }

  absl::StatusOr<size_t> Read(char* buffer, size_t size) override {
    state_->next_out = reinterpret_cast<uint8_t*>(buffer);
    state_->avail_out = static_cast<uint32_t>(std::min<size_t>(size, 1u << 30));
    const uint32_t room = state_->avail_out;
    while (state_->avail_out == room) {
      if (state_->avail_in == 0 && !ended_) CAIRN_RETURN_IF_ERROR(Fill());
      if (between_ && state_->avail_in > 0) {
        // Padding or another member follows.
        if (*state_->next_in == 0) {
          padded_ = true;
          ++state_->next_in;
          --state_->avail_in;
          continue;
        }
        if (padded_ || *state_->next_in != 0x1f) return Damaged(path_, "bytes after the last gzip member", Offset());
        StartMember();
      }
      if (ended_ && state_->avail_in == 0 && between_) return 0;
      if (!begun_ && state_->avail_in > 0) {
        begun_ = true;
        if (!BeginsAsGzip()) return NotCompressed(path_, "gzip");
      }
      const bool input_was_empty = state_->avail_in == 0;
      const int result = isal_inflate(state_.get());
      if (result != ISAL_DECOMP_OK) {
        return Damaged(path_, result == ISAL_INCORRECT_CHECKSUM ? "its checksum is wrong" : "no valid gzip data",
                       Offset());
      }
      if (state_->block_state == ISAL_BLOCK_FINISH) {
        between_ = true;
      } else if (input_was_empty && ended_ && state_->avail_out == room) {
        return Damaged(path_, "it ends inside a gzip member", Offset());
      }
    }
    return room - state_->avail_out;
  }
  bool direct() const override { return raw_->direct(); }

 private:
  void StartMember() {
    uint8_t* const next_in = state_->next_in;
    const uint32_t avail_in = started_ ? state_->avail_in : 0;
    uint8_t* const next_out = state_->next_out;
    const uint32_t avail_out = started_ ? state_->avail_out : 0;
    isal_inflate_init(state_.get());
    state_->crc_flag = ISAL_GZIP;
    state_->next_in = next_in;
    state_->avail_in = avail_in;
    state_->next_out = next_out;
    state_->avail_out = avail_out;
    started_ = true;
    between_ = false;
  }
  absl::Status Fill() {
    CAIRN_ASSIGN_OR_RETURN(const size_t count, raw_->Read(input_.data(), input_.size()));
    state_->next_in = reinterpret_cast<uint8_t*>(input_.data());
    state_->avail_in = static_cast<uint32_t>(count);
    read_ += count;
    ended_ = count == 0;
    // An empty file is no gzip file, but like gzip -d we take it for an empty text.
    if (ended_ && read_ == 0) between_ = true;
    return absl::OkStatus();
  }
  bool BeginsAsGzip() const {
    return state_->next_in[0] == 0x1f && (state_->avail_in == 1 || state_->next_in[1] == 0x8b);
  }
  uint64_t Offset() const { return read_ - state_->avail_in; }

  const std::string path_;
  const std::unique_ptr<ByteSource> raw_;
  AlignedBuffer input_;
  std::unique_ptr<inflate_state> state_;
  uint64_t read_ = 0;
  bool started_ = false;
  bool begun_ = false;    // the file's first bytes have been looked at
  bool between_ = false;  // between two members
  bool padded_ = false;
  bool ended_ = false;
};

class ZstdSource final : public ByteSource {
 public:
  ZstdSource(std::string path, std::unique_ptr<ByteSource> raw, size_t max_window)
      : path_(std::move(path)), raw_(std::move(raw)), input_(kInputBytes), max_window_(max_window) {
    ZSTD_DCtx_setParameter(context_.get(), ZSTD_d_windowLogMax,
                           std::clamp(static_cast<int>(std::bit_width(max_window)) - 1, 10, 31));
  }

  absl::StatusOr<size_t> Read(char* buffer, size_t size) override {
    ZSTD_outBuffer out{buffer, size, 0};
    while (out.pos == 0) {
      if (in_.pos == in_.size && !ended_) {
        CAIRN_ASSIGN_OR_RETURN(const size_t count, raw_->Read(input_.data(), input_.size()));
        in_ = {input_.data(), count, 0};
        read_ += count;
        ended_ = count == 0;
      }
      if (ended_ && frame_complete_) return 0;
      const size_t result = ZSTD_decompressStream(context_.get(), &out, &in_);
      if (ZSTD_isError(result)) {
        if (ZSTD_getErrorCode(result) == ZSTD_error_frameParameter_windowTooLarge) {
          return WindowTooLarge(path_, max_window_);
        }
        if (!begun_ && ZSTD_getErrorCode(result) == ZSTD_error_prefix_unknown) return NotCompressed(path_, "zstd");
        return Damaged(path_, ZSTD_getErrorName(result), read_ - (in_.size - in_.pos));
      }
      begun_ = true;
      frame_complete_ = result == 0;
      if (ended_ && !frame_complete_ && out.pos == 0) return Damaged(path_, "it ends inside a zstd frame", read_);
    }
    return out.pos;
  }
  bool direct() const override { return raw_->direct(); }

 private:
  struct FreeContext {
    void operator()(ZSTD_DCtx* context) const { ZSTD_freeDCtx(context); }
  };

  const std::string path_;
  const std::unique_ptr<ByteSource> raw_;
  AlignedBuffer input_;
  const size_t max_window_;
  std::unique_ptr<ZSTD_DCtx, FreeContext> context_{ZSTD_createDCtx()};
  ZSTD_inBuffer in_{nullptr, 0, 0};
  uint64_t read_ = 0;
  bool begun_ = false;
  bool frame_complete_ = true;
  bool ended_ = false;
};

class XzSource final : public ByteSource {
 public:
  XzSource(const xz::Library& library, std::string path, std::unique_ptr<ByteSource> raw, size_t max_window)
      : library_(library), path_(std::move(path)), raw_(std::move(raw)), input_(kInputBytes), max_window_(max_window) {}
  ~XzSource() override { library_.end(&stream_); }

  absl::StatusOr<size_t> Read(char* buffer, size_t size) override {
    stream_.next_out = reinterpret_cast<uint8_t*>(buffer);
    stream_.avail_out = size;
    while (stream_.avail_out == size && !done_) {
      if (stream_.avail_in == 0 && !ended_) CAIRN_RETURN_IF_ERROR(Fill());
      // Like xz -d, we take an empty file for an empty text.
      if (ended_ && read_ == 0) return 0;
      if (!begun_) CAIRN_RETURN_IF_ERROR(Begin());
      const xz::Result result = library_.code(&stream_, ended_ ? xz::kFinish : xz::kRun);
      done_ = result == xz::kStreamEnd;
      if (result != xz::kOk && !done_) return ErrorOf(result);
    }
    return size - stream_.avail_out;
  }
  bool direct() const override { return raw_->direct(); }

 private:
  absl::Status Begin() {
    begun_ = true;
    const xz::Result result =
        library_.stream_decoder(&stream_, max_window_ + kXzState, xz::kConcatenated | xz::kTellUnsupportedCheck);
    return result == xz::kOk ? absl::OkStatus() : ErrorOf(result);
  }
  absl::Status Fill() {
    CAIRN_ASSIGN_OR_RETURN(const size_t count, raw_->Read(input_.data(), input_.size()));
    stream_.next_in = reinterpret_cast<const uint8_t*>(input_.data());
    stream_.avail_in = count;
    read_ += count;
    ended_ = count == 0;
    return absl::OkStatus();
  }
  absl::Status ErrorOf(xz::Result result) const {
    const uint64_t offset = read_ - stream_.avail_in;
    switch (result) {
      case xz::kMemoryLimit:
        return WindowTooLarge(path_, max_window_);
      case xz::kNoMemory:
        return NoMemory(absl::StrCat("to decompress ", path_));
      case xz::kUnsupportedCheck:
      case xz::kUnknownOptions:
        return MakeError(Reason::kUnsupported,
                         absl::StrCat(path_, " has a filter or a checksum that liblzma does not know"),
                         {{"file", path_}});
      case xz::kNoProgress:
        return Damaged(path_, "it ends inside an xz stream", offset);
      default:
        return result == xz::kNotXz ? NotCompressed(path_, "xz") : Damaged(path_, "no valid xz data", offset);
    }
  }

  const xz::Library& library_;
  const std::string path_;
  const std::unique_ptr<ByteSource> raw_;
  AlignedBuffer input_;
  const size_t max_window_;
  xz::Stream stream_;
  uint64_t read_ = 0;
  bool begun_ = false;
  bool ended_ = false;
  bool done_ = false;
};

}  // namespace

std::unique_ptr<ByteSource> NewGzipSource(std::string path, std::unique_ptr<ByteSource> raw) {
  return std::make_unique<GzipSource>(std::move(path), std::move(raw));
}

std::unique_ptr<ByteSource> NewZstdSource(std::string path, std::unique_ptr<ByteSource> raw, size_t max_window) {
  return std::make_unique<ZstdSource>(std::move(path), std::move(raw), max_window);
}

absl::StatusOr<std::unique_ptr<ByteSource>> NewXzSource(std::string path, std::unique_ptr<ByteSource> raw,
                                                        size_t max_window) {
  CAIRN_ASSIGN_OR_RETURN(const xz::Library* const library, xz::OpenLibrary());
  return std::make_unique<XzSource>(*library, std::move(path), std::move(raw), max_window);
}

}  // namespace cairn::corpus

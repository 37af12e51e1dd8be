#include "corpus/bpe/text_input.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "common/rpc/reason.h"

namespace cairn::corpus {
namespace {

constexpr size_t kCompressedBytes = size_t{256} << 10;
// Frames that would need a larger window are refused: 2^27 bytes is what `zstd -d` takes without a flag.
constexpr int kMaxWindowLog = 27;

bool IsGzip(const std::string& head) { return head.size() >= 2 && head[0] == '\x1F' && head[1] == '\x8B'; }
bool IsZstd(const std::string& head) {
  return head.size() >= 4 && std::memcmp(head.data(), "\x28\xB5\x2F\xFD", 4) == 0;
}

}  // namespace

struct TextInput::Decoder {
  explicit Decoder(bool is_gzip) : gzip(is_gzip), input(kCompressedBytes) {
    if (gzip) {
      inflateInit2(&inflate_state, 15 + 16);
    } else {
      zstd = ZSTD_createDCtx();
      ZSTD_DCtx_setParameter(zstd, ZSTD_d_windowLogMax, kMaxWindowLog);
    }
  }
  ~Decoder() {
    if (gzip) {
      inflateEnd(&inflate_state);
    } else {
      ZSTD_freeDCtx(zstd);
    }
  }

  bool gzip;
  std::vector<char> input;
  size_t input_used = 0, input_size = 0;
  bool inside = false;  // a member or frame has begun and not ended
  z_stream inflate_state = {};
  ZSTD_DCtx* zstd = nullptr;
};

TextInput::TextInput(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}

TextInput::~TextInput() {
  if (fd_ != STDIN_FILENO) close(fd_);
}

absl::Status TextInput::Failed(const std::string& what) const {
  return MakeError(Reason::kInputUnreadable, absl::StrCat(path_, ": ", what), {{"file", path_}});
}

absl::StatusOr<std::unique_ptr<TextInput>> TextInput::Open(const std::string& path) {
  const int fd = path == "-" ? STDIN_FILENO : open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) {
    return MakeError(Reason::kInputUnreadable, absl::StrCat(path, ": ", std::strerror(errno)), {{"file", path}});
  }
  std::unique_ptr<TextInput> source(new TextInput(path, fd));
  struct stat info;
  if (fstat(fd, &info) == 0 && S_ISDIR(info.st_mode)) return source->Failed("is a directory");
  posix_fadvise(fd, 0, 0, POSIX_FADV_SEQUENTIAL);
  char head[4];
  while (source->head_.size() < sizeof(head)) {
    CAIRN_ASSIGN_OR_RETURN(const size_t got, source->ReadFile(head, sizeof(head) - source->head_.size()));
    if (got == 0) break;
    source->head_.append(head, got);
  }
  if (IsGzip(source->head_) || IsZstd(source->head_)) {
    source->decoder_ = std::make_unique<Decoder>(IsGzip(source->head_));
    std::memcpy(source->decoder_->input.data(), source->head_.data(), source->head_.size());
    source->decoder_->input_size = source->head_.size();
    source->head_.clear();
  }
  return source;
}

absl::StatusOr<size_t> TextInput::ReadFile(char* out, size_t size) {
  ssize_t got;
  do {
    got = read(fd_, out, size);
  } while (got < 0 && errno == EINTR);
  if (got < 0) return Failed(std::strerror(errno));
  file_bytes_read_ += static_cast<uint64_t>(got);
  return static_cast<size_t>(got);
}

absl::StatusOr<size_t> TextInput::Read(char* out, size_t size) {
  if (decoder_ == nullptr) {
    if (head_used_ < head_.size()) {
      const size_t count = std::min(size, head_.size() - head_used_);
      std::memcpy(out, head_.data() + head_used_, count);
      head_used_ += count;
      return count;
    }
    return ReadFile(out, size);
  }
  Decoder& d = *decoder_;
  while (true) {
    if (d.input_used == d.input_size) {
      CAIRN_ASSIGN_OR_RETURN(d.input_size, ReadFile(d.input.data(), d.input.size()));
      d.input_used = 0;
      if (d.input_size == 0) {
        if (d.inside) return Failed("the compressed data is cut off");
        return size_t{0};
      }
    }
    size_t made;
    if (d.gzip) {
      d.inflate_state.next_in = reinterpret_cast<Bytef*>(d.input.data() + d.input_used);
      d.inflate_state.avail_in = static_cast<uInt>(d.input_size - d.input_used);
      d.inflate_state.next_out = reinterpret_cast<Bytef*>(out);
      const auto room = static_cast<uInt>(std::min<size_t>(size, 1u << 30));
      d.inflate_state.avail_out = room;
      d.inside = true;
      const int result = inflate(&d.inflate_state, Z_NO_FLUSH);
      d.input_used = d.input_size - d.inflate_state.avail_in;
      made = room - d.inflate_state.avail_out;
      if (result == Z_STREAM_END) {  // another member may follow
        inflateReset(&d.inflate_state);
        d.inside = false;
      } else if (result != Z_OK && result != Z_BUF_ERROR) {
        return Failed(absl::StrCat("the gzip data is damaged: ",
                                   d.inflate_state.msg != nullptr ? d.inflate_state.msg : zError(result)));
      }
    } else {
      ZSTD_inBuffer in = {d.input.data(), d.input_size, d.input_used};
      ZSTD_outBuffer buffer = {out, size, 0};
      const size_t result = ZSTD_decompressStream(d.zstd, &buffer, &in);
      if (ZSTD_isError(result)) return Failed(absl::StrCat("the zstd data is damaged: ", ZSTD_getErrorName(result)));
      d.inside = result != 0;
      d.input_used = in.pos;
      made = buffer.pos;
    }
    if (made > 0) return made;
  }
}

absl::Status TextInput::Skip(uint64_t bytes) {
  if (decoder_ == nullptr && fd_ != STDIN_FILENO && lseek(fd_, static_cast<off_t>(bytes), SEEK_SET) >= 0) {
    head_used_ = head_.size();
    struct stat info;
    if (fstat(fd_, &info) == 0 && static_cast<uint64_t>(info.st_size) < bytes) {
      return Failed(absl::StrCat("has ", info.st_size, " bytes, fewer than the ", bytes, " that were read before"));
    }
    file_bytes_read_ = bytes;
    return absl::OkStatus();
  }
  std::vector<char> buffer(std::min<uint64_t>(bytes, 1 << 20));
  for (uint64_t left = bytes; left > 0;) {
    CAIRN_ASSIGN_OR_RETURN(const size_t got, Read(buffer.data(), std::min<uint64_t>(left, buffer.size())));
    if (got == 0) return Failed("has become shorter than it was");
    left -= got;
  }
  return absl::OkStatus();
}

}  // namespace cairn::corpus

#include "corpus/preprocess/line_batches.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/process/quantity.h"
#include "common/resources/aligned_buffer.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "corpus/io/open_source.h"
#include "corpus/preprocess/document_parser.h"

namespace cairn::corpus {
namespace {

constexpr size_t kReadBytes = 1 << 20;
static_assert(kMaxLineBytes + kLinePadding <= std::numeric_limits<uint32_t>::max());
// A buffer that is this many times too large is given back.
constexpr size_t kFarMore = 4;

// Returns the place behind the last line end in `text` that is surely whole: a CR at the end may be half of CR LF.
size_t LastLineEnd(std::string_view text) {
  const size_t lf = text.rfind('\n');
  const size_t cr = text.substr(0, text.empty() ? 0 : text.size() - 1).rfind('\r');
  if (lf == std::string_view::npos && cr == std::string_view::npos) return 0;
  if (lf == std::string_view::npos) return cr + 1;
  return cr == std::string_view::npos ? lf + 1 : std::max(lf, cr) + 1;
}

// Returns the first CR or LF from `from` on; npos if there is none. find_first_of takes fifty times as long.
size_t FindLineEnd(std::string_view text, size_t from = 0) {
  const size_t lf = text.find('\n', from);
  return std::min(text.substr(0, lf).find('\r', from), lf);
}

// Returns where the first line begins that has more than `most` bytes without its end; npos if there is none.
size_t FindLongLine(std::string_view text, size_t most) {
  for (size_t begin = 0; text.size() - begin > most;) {
    const size_t end = FindLineEnd(text, begin);
    if (std::min(end, text.size()) - begin > most) return begin;
    if (end == std::string_view::npos) break;
    begin = end + 1;
  }
  return std::string_view::npos;
}

}  // namespace

void GrowingBuffer::Reserve(size_t capacity, size_t keep) {
  if (capacity <= capacity_ && data_ != nullptr && (keep != 0 || capacity_ / kFarMore <= capacity)) return;
  auto larger = std::make_unique_for_overwrite<char[]>(capacity + kLinePadding);
  std::memset(larger.get() + capacity, 0, kLinePadding);
  if (keep != 0) std::memcpy(larger.get(), data_.get(), keep);
  data_ = std::move(larger);
  capacity_ = capacity;
}

uint64_t CountLines(std::string_view text) {
  uint64_t lines = 0;
  (void)ForEachLine(text, [&](std::string_view) {
    ++lines;
    return absl::OkStatus();
  });
  return lines;
}

// Reads large pieces, because the source needs aligned memory while a batch begins with what the last one left.
struct LineBatches::Source {
  std::unique_ptr<ByteSource> bytes;
  AlignedBuffer buffer{kReadBytes};
  std::string_view unread;

  // Returns false at the end.
  absl::StatusOr<bool> Fill() {
    if (!unread.empty()) return true;
    CAIRN_ASSIGN_OR_RETURN(const size_t n, bytes->Read(buffer.data(), buffer.size()));
    unread = {buffer.data(), n};
    return n != 0;
  }
  // Returns 0 only at the end.
  absl::StatusOr<size_t> Read(char* data, size_t size) {
    CAIRN_RETURN_IF_ERROR(Fill().status());
    const size_t n = std::min(size, unread.size());
    std::memcpy(data, unread.data(), n);
    unread.remove_prefix(n);
    return n;
  }
  // Drops all bytes up to the end of the line, and that too. `returned` says whether the byte before was a CR.
  absl::Status DropLine(bool returned) {
    while (true) {
      CAIRN_ASSIGN_OR_RETURN(const bool more, Fill());
      if (!more) return absl::OkStatus();
      if (returned) {
        if (unread.front() == '\n') unread.remove_prefix(1);
        return absl::OkStatus();
      }
      const size_t end = FindLineEnd(unread);
      if (end == std::string_view::npos) {
        unread = {};
        continue;
      }
      returned = unread[end] == '\r';
      unread.remove_prefix(end + 1);
      if (!returned) return absl::OkStatus();
    }
  }
};

LineBatches::LineBatches(std::vector<InputPiece> files, Options options)
    : files_(std::move(files)), options_([&] {
        options.max_line = std::min(options.max_line, kMaxLineBytes);
        return std::move(options);
      }()) {}
LineBatches::~LineBatches() = default;

absl::Status LineBatches::Open() {
  CAIRN_ASSIGN_OR_RETURN(auto bytes, OpenPiece(files_[file_], options_.source));
  source_ = std::make_unique<Source>();
  source_->bytes = std::move(bytes);
  return absl::OkStatus();
}

absl::Status LineBatches::TooLong() const {
  return MakeError(Reason::kBadJsonLine,
                   absl::StrCat("the line is longer than ", FormatSize(static_cast<int64_t>(options_.max_line))),
                   {{"next", "Cut the document into several lines, or raise --max-line."}});
}

absl::Status LineBatches::GiveTooLong(LineBatch& batch, size_t size) {
  if (!options_.skip_long) {
    return Annotate(TooLong(), absl::StrCat(files_[file_].name(), ": line ", line_),
                    {{"file", files_[file_].path}, {"line", std::to_string(line_)}});
  }
  batch.file = file_;
  batch.first_line = line_++;
  batch.too_long = true;
  batch.size = 0;
  const std::string_view text(batch.buffer.data(), size);
  const size_t end = FindLineEnd(text);
  if (end == std::string_view::npos) return source_->DropLine(false);
  if (end + 1 == size && text[end] == '\r') return source_->DropLine(true);
  const bool both = text[end] == '\r' && text[end + 1] == '\n';
  carry_.assign(text.substr(end + (both ? 2 : 1)));
  return absl::OkStatus();
}

absl::StatusOr<bool> LineBatches::Next(LineBatch& batch) {
  const size_t max_line = options_.max_line;
  while (file_ < files_.size()) {
    if (source_ == nullptr) CAIRN_RETURN_IF_ERROR(Open());
    batch.buffer.Reserve(std::max(options_.batch_bytes, carry_.size() * 2), 0);
    std::memcpy(batch.buffer.data(), carry_.data(), carry_.size());
    size_t size = carry_.size(), whole = 0, searched = 0;
    carry_.clear();
    bool ended = false;
    while (!ended && whole == 0) {
      if (size == batch.buffer.capacity()) {
        if (size > max_line + 1) {  // the last byte may be a CR, which ends the line
          CAIRN_RETURN_IF_ERROR(GiveTooLong(batch, size));
          return true;
        }
        batch.buffer.Reserve(std::min(size * 2, std::max(size, max_line) + options_.batch_bytes), size);
      }
      while (!ended && size < batch.buffer.capacity()) {
        CAIRN_ASSIGN_OR_RETURN(const size_t n,
                               source_->Read(batch.buffer.data() + size, batch.buffer.capacity() - size));
        ended = n == 0;
        size += n;
      }
      const size_t end = LastLineEnd({batch.buffer.data() + searched, size - searched});
      whole = ended ? size : (end == 0 ? 0 : searched + end);
      searched = size == 0 ? 0 : size - 1;  // the last byte may be a CR
    }
    const size_t long_line = FindLongLine({batch.buffer.data(), whole}, max_line);
    if (long_line == 0) {
      CAIRN_RETURN_IF_ERROR(GiveTooLong(batch, size));
      return true;
    }
    if (long_line != std::string_view::npos) {
      whole = long_line;  // the next call begins with it
      ended = false;
    }
    if (!ended) carry_.assign(batch.buffer.data() + whole, size - whole);
    batch.file = file_;
    batch.first_line = line_;
    batch.too_long = false;
    batch.size = whole;
    if (ended) {
      source_.reset();
      ++file_;
      line_ = 1;
    } else {
      line_ += CountLines(batch.text());
    }
    if (whole == 0) continue;  // the file is empty, or nothing stands behind its last line end
    return true;
  }
  return false;
}

}  // namespace cairn::corpus

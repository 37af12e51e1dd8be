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

  // Returns 0 only at the end.
  absl::StatusOr<size_t> Read(char* data, size_t size) {
    if (unread.empty()) {
      CAIRN_ASSIGN_OR_RETURN(const size_t n, bytes->Read(buffer.data(), buffer.size()));
      unread = {buffer.data(), n};
    }
    const size_t n = std::min(size, unread.size());
    std::memcpy(data, unread.data(), n);
    unread.remove_prefix(n);
    return n;
  }
};

LineBatches::LineBatches(std::vector<std::string> files, size_t batch_bytes, size_t max_line,
                         const std::atomic<bool>* stop)
    : files_(std::move(files)), batch_bytes_(batch_bytes), max_line_(std::min(max_line, kMaxLineBytes)), stop_(stop) {}
LineBatches::~LineBatches() = default;

absl::Status LineBatches::Open() {
  // This reads through the page cache, so the kernel reads ahead while the workers encode.
  CAIRN_ASSIGN_OR_RETURN(auto bytes, OpenSource(files_[file_], {.direct = false, .stop = stop_}));
  source_ = std::make_unique<Source>();
  source_->bytes = std::move(bytes);
  return absl::OkStatus();
}

absl::Status LineBatches::TooLong() const {
  return MakeError(
      Reason::kBadJsonLine,
      absl::StrCat(files_[file_], ": line ", line_, " is longer than ", FormatSize(static_cast<int64_t>(max_line_))),
      {{"file", files_[file_]},
       {"line", std::to_string(line_)},
       {"next", "Cut the document into several lines, or raise --max-line."}});
}

absl::StatusOr<bool> LineBatches::Next(LineBatch& batch) {
  while (file_ < files_.size()) {
    if (source_ == nullptr) CAIRN_RETURN_IF_ERROR(Open());
    batch.buffer.Reserve(std::max(batch_bytes_, carry_.size() * 2), 0);
    std::memcpy(batch.buffer.data(), carry_.data(), carry_.size());
    size_t size = carry_.size(), whole = 0;
    carry_.clear();
    bool ended = false;
    while (!ended && whole == 0) {
      if (size == batch.buffer.capacity()) {
        if (size > max_line_) return TooLong();
        batch.buffer.Reserve(std::min(size * 2, std::max(size, max_line_) + batch_bytes_), size);
      }
      const size_t before = size;
      while (!ended && size < batch.buffer.capacity()) {
        CAIRN_ASSIGN_OR_RETURN(const size_t n,
                               source_->Read(batch.buffer.data() + size, batch.buffer.capacity() - size));
        ended = n == 0;
        size += n;
      }
      // A line end cannot stand before the new bytes, except for a CR that was the last byte.
      const size_t from = before == 0 ? 0 : before - 1;
      const size_t end = LastLineEnd({batch.buffer.data() + from, size - from});
      whole = ended ? size : (end == 0 ? 0 : from + end);
    }
    // Only the first line can be longer than a batch.
    if (whole > max_line_ && std::string_view(batch.buffer.data(), whole).find_first_of("\r\n") > max_line_)
      return TooLong();
    if (!ended) carry_.assign(batch.buffer.data() + whole, size - whole);
    batch.file = file_;
    batch.first_line = line_;
    batch.lines_before = lines_;
    batch.size = whole;
    if (ended) {
      source_.reset();
      ++file_;
      line_ = 1;
    }
    if (whole == 0) continue;  // the file is empty, or nothing stands behind its last line end
    const uint64_t lines = CountLines(batch.text());
    if (!ended) line_ += lines;
    lines_ += lines;
    bytes_ += whole;
    return true;
  }
  return false;
}

}  // namespace cairn::corpus

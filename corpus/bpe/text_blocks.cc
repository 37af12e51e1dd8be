#include "corpus/bpe/text_blocks.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/process/quantity.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "corpus/io/open_source.h"
#include "corpus/unicode/class_table.h"

namespace cairn::corpus {
namespace {

constexpr size_t kMaxBlockBytes = (size_t{1} << 32) - 1;
constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

// Returns the length of the maximal subpart of an ill-formed sequence at p (Unicode 16, section 3.9, D93b), and sets
// whether only the end cuts it off.
size_t MaximalSubpart(const uint8_t* p, const uint8_t* end, bool* cut_off) {
  *cut_off = false;
  const uint8_t b0 = p[0];
  if (b0 < 0xC2 || b0 > 0xF4) return 1;
  const size_t needed = b0 < 0xE0 ? 2 : b0 < 0xF0 ? 3 : 4;
  const uint8_t low = b0 == 0xE0 ? 0xA0 : b0 == 0xF0 ? 0x90 : 0x80;
  const uint8_t high = b0 == 0xED ? 0x9F : b0 == 0xF4 ? 0x8F : 0xBF;
  for (size_t i = 1; i < needed; ++i) {
    if (p + i == end) {
      *cut_off = true;
      return i;
    }
    const bool fits = i == 1 ? p[i] >= low && p[i] <= high : IsUtf8Continuation(p[i]);
    if (!fits) return i;
  }
  return needed;
}

}  // namespace

absl::StatusOr<InvalidUtf8> ParseInvalidUtf8(std::string_view name) {
  if (name == "bytes") return InvalidUtf8::kBytes;
  if (name == "error") return InvalidUtf8::kError;
  if (name == "skip") return InvalidUtf8::kSkip;
  if (name == "replace") return InvalidUtf8::kReplace;
  return MakeError(Reason::kBadRequest, absl::StrCat("'", std::string(name),
                                                     "' is no policy for invalid UTF-8: bytes, error, skip, replace"));
}

size_t RepairUtf8(std::string_view text, InvalidUtf8 policy, bool last, std::string& out) {
  while (true) {
    const size_t bad = FindInvalidUtf8(text);
    if (bad == std::string_view::npos) {
      out.append(text);
      return 0;
    }
    out.append(text.substr(0, bad));
    const auto* p = reinterpret_cast<const uint8_t*>(text.data()) + bad;
    bool cut_off = false;
    const size_t length = MaximalSubpart(p, reinterpret_cast<const uint8_t*>(text.data()) + text.size(), &cut_off);
    if (cut_off && !last) return length;
    if (policy == InvalidUtf8::kReplace) out.append(kReplacement);
    text.remove_prefix(bad + length);
  }
}

absl::StatusOr<uint64_t> SafeCutBefore(const RangedInput& input, uint64_t offset, const Pretokenizer& pretokenizer,
                                       const SpecialMatcher& specials) {
  // The character behind the cut must be there, the one before, and a special token across it.
  const uint64_t margin = 4 + specials.longest();
  for (uint64_t look = size_t{64} << 10;; look *= 8) {
    const uint64_t begin = offset - std::min(offset, look);
    std::string text(offset - begin + margin, '\0');
    CAIRN_ASSIGN_OR_RETURN(const size_t count, input.Read(begin, text.data(), text.size()));
    text.resize(count);
    size_t cut = std::min<uint64_t>(offset - begin, text.size());
    while (cut > 0) {
      cut = pretokenizer.LastSafeCut(text, cut);
      if (cut == 0 || !specials.Crosses(text, cut)) break;
      --cut;
    }
    if (begin == 0 || cut >= margin) return begin + cut;
    if (look > kMaxBlockBytes) return 0;
  }
}

BlockReader::BlockReader(Options options, const Pretokenizer& pretokenizer, const SpecialMatcher& specials)
    : options_(std::move(options)), pretokenizer_(pretokenizer), specials_(specials), chunk_(options_.block_bytes) {}

// Opens the current input at an offset of its decompressed bytes.
absl::Status BlockReader::Open(uint64_t offset) {
  InputPiece piece = options_.inputs[position_.input];
  // This reads through the page cache, because the same text is likely to be read again, for another vocabulary or for
  // encoding.
  const SourceOptions reading = {.direct = false,
                                 .stop = options_.stop,
                                 .file_bytes = &file_bytes_,
                                 .columns = options_.columns,
                                 .table_readers = options_.table_readers};
  at_end_ = false;
  if (offset > 0 && piece.path != "-" && IsReadAsItIs(piece.path)) {
    file_bytes_ += offset;
    piece.begin += offset;
    offset = 0;
  }
  CAIRN_ASSIGN_OR_RETURN(source_, OpenPiece(piece, reading));
  if (offset > 0) source_ = SkipBytes(std::move(source_), offset);
  return absl::OkStatus();
}

// Adds what was read from an input, in the form that the policy for invalid UTF-8 gives it.
absl::Status BlockReader::Append(std::string_view bytes, bool last) {
  std::string& unread = position_.unread;
  if (options_.invalid_utf8 == InvalidUtf8::kBytes) {
    unread.append(bytes);
    return absl::OkStatus();
  }
  std::string& incomplete = position_.incomplete;
  incomplete.append(bytes);
  size_t rest = 0;
  if (options_.invalid_utf8 == InvalidUtf8::kError) {
    const size_t bad = FindInvalidUtf8(incomplete);
    if (bad == std::string_view::npos) {
      unread.append(incomplete);
    } else {
      bool cut_off = false;
      const auto* p = reinterpret_cast<const uint8_t*>(incomplete.data());
      MaximalSubpart(p + bad, p + incomplete.size(), &cut_off);
      if (!cut_off || last) {
        const InputPiece& input = options_.inputs[position_.input];
        const uint64_t offset = position_.offset - incomplete.size() + bad;
        return MakeError(Reason::kInvalidUtf8,
                         absl::StrCat(input.name(), ": byte ", static_cast<int>(p[bad]), " at offset ", offset,
                                      " is not valid UTF-8"),
                         {{"file", input.path}, {"offset", absl::StrCat(offset)}});
      }
      unread.append(incomplete, 0, bad);
      rest = incomplete.size() - bad;
    }
  } else {
    rest = RepairUtf8(incomplete, options_.invalid_utf8, last, unread);
  }
  incomplete.erase(0, incomplete.size() - rest);
  return absl::OkStatus();
}

// Reads on until `wanted` bytes are there or the input ends.
absl::Status BlockReader::Fill(size_t wanted) {
  position_.unread.reserve(wanted + chunk_.size() + 64);  // parsers may read a little beyond the end
  while (position_.unread.size() < wanted && !at_end_) {
    CAIRN_ASSIGN_OR_RETURN(const size_t got, source_->Read(chunk_.data(), chunk_.size()));
    position_.offset += got;
    at_end_ = got == 0;
    CAIRN_RETURN_IF_ERROR(Append(std::string_view(chunk_.data(), got), at_end_));
  }
  return absl::OkStatus();
}

// Returns how much of the bytes can go into a block; 0 if there is no place to cut yet.
size_t BlockReader::CutPlace() const {
  const std::string& text = position_.unread;
  if (at_end_) return text.size();
  if (options_.unit != TextUnit::kFile) {
    const void* newline = memrchr(text.data(), '\n', text.size());
    return newline == nullptr ? 0 : static_cast<size_t>(static_cast<const char*>(newline) - text.data()) + 1;
  }
  if (!pretokenizer_.has_safe_cuts()) return 0;
  // Leaves room for the character behind the cut, and for a special token that might begin before it.
  const size_t margin = 4 + specials_.longest();
  size_t cut = text.size() > margin ? text.size() - margin : 0;
  while (cut > 0) {
    cut = pretokenizer_.LastSafeCut(text, cut);
    if (cut == 0 || !specials_.Crosses(text, cut)) break;
    --cut;
  }
  return cut;
}

// Forgets the unread bytes, in which no line ends, and reads on to the end of their line.
absl::Status BlockReader::DropLine() {
  std::string& unread = position_.unread;
  dropping_ = false;
  ++position_.line;
  size_t newline = std::string::npos;
  while (newline == std::string::npos && !at_end_) {
    unread.clear();
    CAIRN_RETURN_IF_ERROR(Fill(1));
    newline = unread.find('\n');
  }
  unread.erase(0, newline == std::string::npos ? newline : newline + 1);
  return absl::OkStatus();
}

absl::Status BlockReader::TooLong() const {
  const std::string& input = options_.inputs[position_.input].path;
  return MakeError(
      Reason::kMemoryLimit,
      absl::StrCat(input, ": more than ", FormatSize(static_cast<int64_t>(options_.most_bytes)),
                   " of text without a place where the pre-tokenizer lets it be cut"),
      {{"file", input}, {"next", "Give --by-line, which cuts at newlines, or cut the file into several."}});
}

absl::StatusOr<TextBlock> BlockReader::Next(TextBlock used) {
  for (; position_.input < options_.inputs.size();) {
    if (source_ == nullptr) CAIRN_RETURN_IF_ERROR(Open(0));
    if (dropping_) CAIRN_RETURN_IF_ERROR(DropLine());
    size_t cut = 0;
    for (size_t wanted = options_.block_bytes; cut == 0; wanted *= 2) {
      CAIRN_RETURN_IF_ERROR(Fill(std::min(wanted, options_.most_bytes)));
      cut = CutPlace();
      if (at_end_) break;
      if (cut != 0 || wanted <= options_.most_bytes) continue;
      if (options_.unit == TextUnit::kFile) return TooLong();
      dropping_ = true;
      break;
    }
    TextBlock block;
    block.input = position_.input;
    block.first_line = position_.line;
    block.too_long = dropping_;
    if (dropping_) return block;
    // Only the rest, a few bytes, has to be copied.
    used.bytes.assign(position_.unread, cut);
    position_.unread.resize(cut);
    block.bytes = std::move(position_.unread);
    position_.unread = std::move(used.bytes);
    if (options_.unit != TextUnit::kFile) {
      position_.line += static_cast<uint64_t>(std::count(block.bytes.begin(), block.bytes.end(), '\n'));
    }
    if (at_end_) {
      source_.reset();
      position_ = Position{.input = position_.input + 1};
    }
    if (!block.bytes.empty()) return block;
  }
  return TextBlock{};
}

BlockReader::Position BlockReader::Tell() const { return position_; }

absl::Status BlockReader::Seek(Position position) {
  position_ = std::move(position);
  if (position_.input >= options_.inputs.size()) return absl::OkStatus();
  return Open(position_.offset);
}

}  // namespace cairn::corpus

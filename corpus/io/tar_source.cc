#include "corpus/io/tar_source.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <string_view>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/resources/aligned_buffer.h"
#include "common/status/reason.h"
#include "common/status/status.h"

namespace cairn::corpus {
namespace {

constexpr size_t kInputBytes = 256 << 10;
constexpr size_t kBlock = 512;
// A header that describes the next file.
constexpr uint64_t kMostAboutNext = 1 << 20;
constexpr std::string_view kBegin = "{\"text\": \"", kEnd = "\"}\n";
constexpr size_t kLongestEscape = 6;

using Header = std::array<char, kBlock>;

std::string_view FieldOf(const Header& header, size_t begin, size_t size) {
  const std::string_view field(header.data() + begin, size);
  return field.substr(0, field.find('\0'));
}

// Reads an octal number, or GNU's binary one. Nothing if it is neither, or negative.
std::optional<uint64_t> NumberOf(const Header& header, size_t begin, size_t size) {
  if (static_cast<unsigned char>(header[begin]) == 0x80) {
    uint64_t value = 0;
    for (size_t i = 1; i < size; ++i) {
      if (value >> 55 != 0) return std::nullopt;
      value = value << 8 | static_cast<unsigned char>(header[begin + i]);
    }
    return value;
  }
  std::string_view field = FieldOf(header, begin, size);
  field.remove_prefix(std::min(field.find_first_not_of(' '), field.size()));
  field = field.substr(0, field.find(' '));
  uint64_t value = 0;
  for (const char digit : field) {
    if (digit < '0' || digit > '7') return std::nullopt;
    value = value << 3 | static_cast<uint64_t>(digit - '0');  // at most 12 digits
  }
  return value;
}

bool HasItsChecksum(const Header& header) {
  constexpr size_t kAt = 148, kSize = 8;
  uint64_t sum = 0;
  for (size_t i = 0; i < kBlock; ++i) {
    sum += i >= kAt && i < kAt + kSize ? ' ' : static_cast<unsigned char>(header[i]);
  }
  return NumberOf(header, kAt, kSize) == sum;
}

bool IsZero(std::string_view bytes) { return bytes.find_first_not_of('\0') == std::string_view::npos; }

bool IsText(std::string_view name) {
  const size_t slash = name.rfind('/');
  if (slash != std::string_view::npos) name.remove_prefix(slash + 1);
  return name.ends_with(".txt") && !name.starts_with('.');
}

// Appends what Python's json module writes for a byte of a text; at most kLongestEscape bytes.
char* Escape(char c, char* out) {
  static constexpr std::string_view kMeanings = "\"\\\b\f\n\r\t", kNames = "\"\\bfnrt";
  if (static_cast<unsigned char>(c) >= 0x20 && c != '"' && c != '\\') {
    *out++ = c;
    return out;
  }
  *out++ = '\\';
  if (const size_t place = kMeanings.find(c); place != std::string_view::npos) {
    *out++ = kNames[place];
    return out;
  }
  static constexpr char kDigits[] = "0123456789abcdef";
  out = std::copy_n("u00", 3, out);
  *out++ = kDigits[c >> 4];
  *out++ = kDigits[c & 15];
  return out;
}

class TarSource final : public ByteSource {
 public:
  TarSource(std::string path, std::unique_ptr<ByteSource> raw)
      : path_(std::move(path)), raw_(std::move(raw)), input_(kInputBytes) {}

  absl::StatusOr<size_t> Read(char* buffer, size_t size) override {
    char* out = buffer;
    const char* const end = buffer + size;
    while (!done_ && static_cast<size_t>(end - out) >= kBegin.size() + kEnd.size() + kLongestEscape) {
      if (!in_text_) {
        CAIRN_RETURN_IF_ERROR(NextText());
        if (in_text_) out = std::copy(kBegin.begin(), kBegin.end(), out);
        continue;
      }
      if (left_ == 0) {
        out = std::copy(kEnd.begin(), kEnd.end(), out);
        in_text_ = false;
        CAIRN_RETURN_IF_ERROR(Skip(padding_));
        continue;
      }
      CAIRN_RETURN_IF_ERROR(Fill());
      const size_t room = (static_cast<size_t>(end - out) - kEnd.size()) / kLongestEscape;
      const size_t count = static_cast<size_t>(std::min<uint64_t>({unread_.size(), left_, room}));
      for (const char c : unread_.substr(0, count)) out = Escape(c, out);
      Take(count);
      left_ -= count;
    }
    return static_cast<size_t>(out - buffer);
  }
  bool direct() const override { return raw_->direct(); }

 private:
  absl::Status Damaged(std::string_view what) const {
    return MakeError(Reason::kInputUnreadable,
                     absl::StrCat(path_, " is damaged: ", std::string(what), " at byte ", offset_, " of the tar"),
                     {{"file", path_}});
  }

  // Reads on if nothing is unread.
  absl::Status Fill() {
    if (!unread_.empty()) return absl::OkStatus();
    CAIRN_ASSIGN_OR_RETURN(const size_t count, raw_->Read(input_.data(), input_.size()));
    if (count == 0) return Damaged("it is cut off");
    unread_ = {input_.data(), count};
    return absl::OkStatus();
  }
  void Take(size_t count) {
    unread_.remove_prefix(count);
    offset_ += count;
  }
  absl::Status Skip(uint64_t bytes) {
    while (bytes > 0) {
      CAIRN_RETURN_IF_ERROR(Fill());
      const auto count = static_cast<size_t>(std::min<uint64_t>(bytes, unread_.size()));
      Take(count);
      bytes -= count;
    }
    return absl::OkStatus();
  }
  absl::Status Copy(char* to, size_t size) {
    while (size > 0) {
      CAIRN_RETURN_IF_ERROR(Fill());
      const size_t count = std::min(size, unread_.size());
      std::memcpy(to, unread_.data(), count);
      Take(count);
      to += count;
      size -= count;
    }
    return absl::OkStatus();
  }

  // Reads what is behind the last file. A second tar there would else be lost without a word.
  absl::Status End() {
    while (true) {
      if (!IsZero(unread_)) return Damaged("another tar, or something else, follows its end");
      Take(unread_.size());
      CAIRN_ASSIGN_OR_RETURN(const size_t count, raw_->Read(input_.data(), input_.size()));
      if (count == 0) break;
      unread_ = {input_.data(), count};
    }
    done_ = true;
    return absl::OkStatus();
  }

  // Goes on to the content of the next text, or to the end.
  absl::Status NextText() {
    std::string name;        // that a header before the file's own one has told
    uint64_t told_size = 0;  // likewise, if is_told
    bool is_told = false;
    while (true) {
      Header header;
      CAIRN_RETURN_IF_ERROR(Copy(header.data(), header.size()));
      if (IsZero({header.data(), header.size()})) return End();
      const std::optional<uint64_t> own_size = NumberOf(header, 124, 12);
      if (!HasItsChecksum(header) || !own_size.has_value()) return Damaged("no header of a file ends");
      const char type = header[156];
      uint64_t size = *own_size;
      const auto padding_of = [](uint64_t bytes) { return (kBlock - bytes % kBlock) % kBlock; };
      if (type == 'x' || type == 'L') {
        if (size > kMostAboutNext) return Damaged("the description of a file is above 1 MiB");
        std::string content(static_cast<size_t>(size), '\0');
        CAIRN_RETURN_IF_ERROR(Copy(content.data(), content.size()));
        CAIRN_RETURN_IF_ERROR(Skip(padding_of(size)));
        if (type == 'L') {
          name = content.substr(0, content.find('\0'));
        } else if (!ReadRecords(content, name, told_size, is_told)) {
          return Damaged("no records of a file end");
        }
        continue;
      }
      // What describes all files or a link is passed over, together with its content.
      const bool about_others = type == 'g' || type == 'K';
      if (!about_others && is_told) size = told_size;
      if (type >= '1' && type <= '6') size = 0;  // links, devices and directories have no content
      if (size > UINT64_MAX - kBlock) return Damaged("no header of a file ends");
      const bool regular = type == '0' || type == '\0' || type == '7';
      if (regular && IsText(name.empty() ? FieldOf(header, 0, 100) : name)) {
        in_text_ = true;
        left_ = size;
        padding_ = padding_of(size);
        return absl::OkStatus();
      }
      CAIRN_RETURN_IF_ERROR(Skip(size));
      CAIRN_RETURN_IF_ERROR(Skip(padding_of(size)));
      if (about_others) continue;
      name.clear();
      is_told = false;
    }
  }

  // Reads the records "LENGTH KEY=VALUE\n" of POSIX.
  static bool ReadRecords(std::string_view records, std::string& name, uint64_t& size, bool& has_size) {
    while (!records.empty()) {
      const size_t blank = records.find(' ');
      uint64_t length = 0;
      if (blank == std::string_view::npos || !absl::SimpleAtoi(std::string(records.substr(0, blank)), &length) ||
          length < blank + 2 || length > records.size() || records[length - 1] != '\n') {
        return false;
      }
      const std::string_view record = records.substr(blank + 1, length - blank - 2);
      const size_t equals = record.find('=');
      if (equals == std::string_view::npos) return false;
      const std::string_view key = record.substr(0, equals), value = record.substr(equals + 1);
      if (key == "path") name = value;
      if (key == "size") {
        if (!absl::SimpleAtoi(std::string(value), &size)) return false;
        has_size = true;
      }
      records.remove_prefix(length);
    }
    return true;
  }

  const std::string path_;
  const std::unique_ptr<ByteSource> raw_;
  AlignedBuffer input_;
  std::string_view unread_;  // of input_
  uint64_t offset_ = 0;      // of the next unread byte in the tar
  bool in_text_ = false;
  uint64_t left_ = 0;     // of the text
  uint64_t padding_ = 0;  // behind it
  bool done_ = false;
};

}  // namespace

std::unique_ptr<ByteSource> NewTarSource(std::string path, std::unique_ptr<ByteSource> raw) {
  return std::make_unique<TarSource>(std::move(path), std::move(raw));
}

}  // namespace cairn::corpus

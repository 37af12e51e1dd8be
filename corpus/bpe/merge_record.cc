#include "corpus/bpe/merge_record.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <optional>

#include "absl/strings/str_cat.h"
#include "common/base/crc32c.h"
#include "common/file/full_transfer.h"
#include "common/status/status.h"
#include "corpus/bpe/byte_level.h"
#include "corpus/io/errno_status.h"

namespace cairn::corpus {
namespace {

constexpr uint64_t kMostBytes = uint64_t{1} << 32;

// Takes the text before the first `end` off `text`, and `end` too. Returns nothing if there is none.
std::optional<std::string_view> TakeUntil(char end, std::string_view& text) {
  const size_t at = text.find(end);
  if (at == std::string_view::npos) return std::nullopt;
  const std::string_view taken = text.substr(0, at);
  text.remove_prefix(at + 1);
  return taken;
}

template <typename T>
bool ParseNumber(std::string_view text, T& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size();
}

std::optional<MergeRecord::Merges> ParsePart(std::string_view part) {
  MergeRecord::Merges merges;
  while (!part.empty()) {
    const auto left_text = TakeUntil(' ', part);
    const auto right_text = TakeUntil('\n', part);
    if (!left_text.has_value() || !right_text.has_value()) return std::nullopt;
    auto left = FromByteLevel(*left_text), right = FromByteLevel(*right_text);
    if (!left.has_value() || !right.has_value() || left->empty() || right->empty()) return std::nullopt;
    merges.emplace_back(*std::move(left), *std::move(right));
  }
  return merges;
}

}  // namespace

size_t MergeRecord::Read(std::string_view content, const std::string& fingerprint) {
  const std::string begin = absl::StrCat(fingerprint, "\n");
  if (content.substr(0, begin.size()) != begin) return 0;
  crc_ = Crc32c(begin.data(), begin.size());
  std::string_view rest = content.substr(begin.size());
  while (true) {
    const size_t whole = content.size() - rest.size();
    const auto crc_text = TakeUntil(' ', rest);
    const auto length_text = TakeUntil('\n', rest);
    uint32_t crc = 0;
    uint64_t length = 0;
    if (!crc_text.has_value() || !length_text.has_value()) return whole;
    if (!ParseNumber(*crc_text, crc) || !ParseNumber(*length_text, length) || length > rest.size()) return whole;
    const std::string_view part = rest.substr(0, length);
    if (ExtendCrc32c(crc_, part.data(), part.size()) != crc) return whole;
    auto merges = ParsePart(part);
    if (!merges.has_value()) return whole;
    merges_.insert(merges_.end(), merges->begin(), merges->end());
    crc_ = crc;
    rest.remove_prefix(length);
  }
}

absl::StatusOr<MergeRecord> MergeRecord::Open(const std::string& path, const std::string& fingerprint) {
  UniqueFd file(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
  if (!file.valid()) return OutputError("open", path, errno);
  CAIRN_ASSIGN_OR_RETURN(const std::string content, ReadWhole(file.get(), path, kMostBytes));
  MergeRecord record(path, std::move(file));
  const size_t length = record.Read(content, fingerprint);
  if (ftruncate(record.file_.get(), static_cast<off_t>(length)) != 0) return OutputError("truncate", path, errno);
  if (lseek(record.file_.get(), static_cast<off_t>(length), SEEK_SET) < 0) return OutputError("write", path, errno);
  if (length > 0) return record;
  const std::string begin = absl::StrCat(fingerprint, "\n");
  if (const int error = WriteFully(record.file_.get(), begin); error != 0) return OutputError("write", path, error);
  record.crc_ = Crc32c(begin.data(), begin.size());
  return record;
}

MergeRecord::~MergeRecord() {
  if (file_.valid() && merges_.empty() && !appended_) unlink(path_.c_str());
}

absl::Status MergeRecord::Append(const Merges& more) {
  appended_ = true;
  std::string part;
  for (const auto& [left, right] : more) absl::StrAppend(&part, ToByteLevel(left), " ", ToByteLevel(right), "\n");
  crc_ = ExtendCrc32c(crc_, part.data(), part.size());
  const std::string text = absl::StrCat(crc_, " ", part.size(), "\n", part);
  if (const int error = WriteFully(file_.get(), text); error != 0) return OutputError("write", path_, error);
  return absl::OkStatus();
}

}  // namespace cairn::corpus

#include "foreign/read/torch/zip_archive.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/status/reason.h"
#include "common/status/status.h"

namespace cairn {
namespace {

constexpr uint64_t kEndBytes = 22, kEnd64Bytes = 56, kLocator64Bytes = 20, kEntryBytes = 46, kLocalBytes = 30;
constexpr uint64_t kMostDirectoryBytes = uint64_t{256} << 20;

uint64_t Little(std::string_view bytes, size_t at, size_t size) {
  uint64_t value = 0;
  for (size_t i = 0; i < size; ++i) value |= static_cast<uint64_t>(static_cast<uint8_t>(bytes[at + i])) << (8 * i);
  return value;
}

class Opener {
 public:
  Opener(uint64_t bytes, const ReadRange& read, const std::string& what) : bytes_(bytes), read_(read), what_(what) {}

  absl::StatusOr<std::vector<ZipRecord>> Open() {
    if (bytes_ < kEndBytes) return Bad("is too short");
    CAIRN_RETURN_IF_ERROR(FindDirectory());
    CAIRN_ASSIGN_OR_RETURN(const std::string directory, Read(directory_offset_, directory_bytes_));
    std::vector<ZipRecord> records;
    size_t at = 0;
    for (uint64_t i = 0; i < entries_; ++i) {
      if (directory.size() - at < kEntryBytes || Little(directory, at, 4) != 0x02014b50)
        return Bad("has a damaged directory");
      const uint64_t method = Little(directory, at + 10, 2), name_bytes = Little(directory, at + 28, 2),
                     extra_bytes = Little(directory, at + 30, 2), comment_bytes = Little(directory, at + 32, 2);
      if (directory.size() - at - kEntryBytes < name_bytes + extra_bytes + comment_bytes) {
        return Bad("has a damaged directory");
      }
      const std::string_view name = std::string_view(directory).substr(at + kEntryBytes, name_bytes);
      const std::string_view extra = std::string_view(directory).substr(at + kEntryBytes + name_bytes, extra_bytes);
      uint64_t stored = Little(directory, at + 20, 4), size = Little(directory, at + 24, 4),
               header = Little(directory, at + 42, 4);
      if (!ReadExtra(extra, stored, size, header)) return Bad("has a damaged directory");
      if (method != 0 || stored != size) {
        return MakeError(Reason::kUnsupported,
                         absl::StrCat(what_, ": the record '", std::string(name), "' is compressed"),
                         {{"file", what_}});
      }
      at += kEntryBytes + name_bytes + extra_bytes + comment_bytes;
      CAIRN_ASSIGN_OR_RETURN(const uint64_t offset, DataOffset(header, size));
      const size_t slash = name.find('/');
      records.push_back({std::string(slash == std::string_view::npos ? name : name.substr(slash + 1)), offset, size});
    }
    return records;
  }

 private:
  absl::Status Bad(std::string_view problem) const {
    return MakeError(Reason::kBadForeignFile, absl::StrCat(what_, ": the zip archive ", std::string(problem)),
                     {{"file", what_}});
  }

  absl::StatusOr<std::string> Read(uint64_t offset, uint64_t bytes) {
    if (bytes > bytes_ || offset > bytes_ - bytes) return Bad("points outside of itself");
    return read_(offset, bytes);
  }

  absl::Status FindDirectory() {
    // torch writes no comment, so the end record is the last bytes of the archive.
    CAIRN_ASSIGN_OR_RETURN(const std::string end, Read(bytes_ - kEndBytes, kEndBytes));
    if (Little(end, 0, 4) != 0x06054b50) return Bad("has no end record where it should be");
    entries_ = Little(end, 10, 2);
    directory_bytes_ = Little(end, 12, 4);
    directory_offset_ = Little(end, 16, 4);
    if (bytes_ >= kEndBytes + kLocator64Bytes + kEnd64Bytes) {
      CAIRN_ASSIGN_OR_RETURN(const std::string locator, Read(bytes_ - kEndBytes - kLocator64Bytes, kLocator64Bytes));
      if (Little(locator, 0, 4) == 0x07064b50) {
        CAIRN_ASSIGN_OR_RETURN(const std::string end64, Read(Little(locator, 8, 8), kEnd64Bytes));
        if (Little(end64, 0, 4) != 0x06064b50) return Bad("has no 64-bit end record where it should be");
        entries_ = Little(end64, 32, 8);
        directory_bytes_ = Little(end64, 40, 8);
        directory_offset_ = Little(end64, 48, 8);
      }
    }
    if (directory_bytes_ > kMostDirectoryBytes || entries_ > directory_bytes_ / kEntryBytes) {
      return Bad("has a damaged directory");
    }
    return absl::OkStatus();
  }

  // Numbers of an entry that do not fit into 32 bits are in its extra field.
  static bool ReadExtra(std::string_view extra, uint64_t& stored, uint64_t& size, uint64_t& header) {
    while (extra.size() >= 4) {
      const uint64_t tag = Little(extra, 0, 2), bytes = Little(extra, 2, 2);
      extra.remove_prefix(4);
      if (bytes > extra.size()) return true;  // torch pads with a field without meaning
      if (tag == 1) {
        std::string_view numbers = extra.substr(0, bytes);
        for (uint64_t* number : {&size, &stored, &header}) {
          if (*number != UINT32_MAX) continue;
          if (numbers.size() < 8) return false;
          *number = Little(numbers, 0, 8);
          numbers.remove_prefix(8);
        }
      }
      extra.remove_prefix(bytes);
    }
    return true;
  }

  // A record's bytes follow its own header, and only that header has its length.
  absl::StatusOr<uint64_t> DataOffset(uint64_t header, uint64_t size) {
    CAIRN_ASSIGN_OR_RETURN(const std::string local, Read(header, kLocalBytes));
    if (Little(local, 0, 4) != 0x04034b50) return Bad("has no record where its directory says");
    const uint64_t offset = header + kLocalBytes + Little(local, 26, 2) + Little(local, 28, 2);
    if (offset > bytes_ || size > bytes_ - offset) return Bad("has a record that ends outside of it");
    return offset;
  }

  const uint64_t bytes_;
  const ReadRange& read_;
  const std::string& what_;
  uint64_t entries_ = 0, directory_bytes_ = 0, directory_offset_ = 0;
};

}  // namespace

absl::StatusOr<ZipArchive> ZipArchive::Open(uint64_t bytes, const ReadRange& read, const std::string& what) {
  ZipArchive archive;
  CAIRN_ASSIGN_OR_RETURN(archive.records_, Opener(bytes, read, what).Open());
  return archive;
}

const ZipRecord* ZipArchive::Find(std::string_view name) const {
  const auto found =
      std::find_if(records_.begin(), records_.end(), [&](const ZipRecord& record) { return record.name == name; });
  return found == records_.end() ? nullptr : &*found;
}

}  // namespace cairn

#include "export/item_reader.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "absl/strings/str_cat.h"
#include "common/base/crc32c.h"
#include "common/file/errno_error.h"
#include "common/file/full_transfer.h"
#include "common/status/reason.h"
#include "common/status/status.h"

namespace cairn {
namespace {

absl::Status ReadAt(int fd, const std::string& path, uint64_t offset, uint64_t bytes, void* to) {
  size_t got = 0;
  if (const int error = ReadFullyAt(fd, to, bytes, offset, got); error != 0) return ErrnoError(error, "read", path);
  if (got == bytes) return absl::OkStatus();
  return MakeError(Reason::kFileTruncated, absl::StrCat(path, " ends at ", offset + got), {{"file", path}});
}

}  // namespace

absl::StatusOr<const ItemReader::File*> ItemReader::Open(uint32_t number) {
  MutexLock lock(mutex_);
  std::unique_ptr<File>& kept = files_[number];
  if (kept != nullptr) return kept.get();
  const ManifestFile& file = manifest_.files[number];
  auto opened = std::make_unique<File>();
  opened->imported = file.imported();
  if (opened->imported) {
    opened->path = file.name;
    opened->fd = UniqueFd(open(file.name.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
    if (!opened->fd.valid()) return ErrnoError(errno, "open", file.name);
  } else {
    opened->path = absl::StrCat(manifest_.job, "/", manifest_.path_of(file));
    CAIRN_ASSIGN_OR_RETURN(opened->fd, storage_->OpenFile(opened->path, O_RDONLY));
  }
  struct stat info;
  if (fstat(opened->fd.get(), &info) != 0) return ErrnoError(errno, "stat", opened->path);
  if (static_cast<uint64_t>(info.st_size) != file.bytes()) {
    return MakeError(
        Reason::kFileTruncated,
        absl::StrCat(opened->path, " has ", info.st_size, " bytes, its manifest says ", file.bytes()),
        {{"file", opened->path}, {"bytes", absl::StrCat(info.st_size)}, {"expected", absl::StrCat(file.bytes())}});
  }
  if (!opened->imported) CAIRN_RETURN_IF_ERROR(ReadHeader(file, *opened));
  kept = std::move(opened);
  return kept.get();
}

absl::Status ItemReader::ReadHeader(const ManifestFile& file, File& opened) {
  if (file.header_bytes > kMaxHeaderBytes + 8) {
    return MakeError(Reason::kBadSafetensors, absl::StrCat(opened.path, ": a header of ", file.header_bytes, " bytes"),
                     {{"file", opened.path}});
  }
  std::string header(file.header_bytes, '\0');
  CAIRN_RETURN_IF_ERROR(ReadAt(opened.fd.get(), opened.path, 0, header.size(), header.data()));
  if (Crc32c(header.data(), header.size()) != file.header_crc32c) {
    return MakeError(Reason::kChecksumMismatch,
                     absl::StrCat(opened.path, ": the header is not the one that was written"),
                     {{"file", opened.path}, {"offset", "0"}});
  }
  auto parsed = ParseHeader(header);
  if (!parsed.ok()) return Annotate(parsed.status(), opened.path, {{"file", opened.path}});
  for (ParsedItem& item : parsed->items) opened.blocks.push_back(std::move(item.checksums.blocks));
  return absl::OkStatus();
}

absl::Status ItemReader::Read(const ManifestShard& shard, uint64_t begin, uint64_t bytes, std::byte* to) {
  CAIRN_ASSIGN_OR_RETURN(const File* file, Open(shard.file));
  return ReadBlocks(*file, manifest_.tensors[shard.tensor].name, shard.item, shard.file_offset, shard.bytes, begin,
                    bytes, to);
}

absl::StatusOr<std::string> ItemReader::Read(const ManifestObject& object) {
  CAIRN_ASSIGN_OR_RETURN(const File* file, Open(object.file));
  std::string bytes(object.slot_bytes, '\0');
  CAIRN_RETURN_IF_ERROR(ReadBlocks(*file, object.name, object.item, object.file_offset, object.slot_bytes, 0,
                                   object.slot_bytes, reinterpret_cast<std::byte*>(bytes.data())));
  bytes.resize(object.bytes);
  return bytes;
}

absl::Status ItemReader::ReadBlocks(const File& file, const std::string& name, uint32_t item, uint64_t item_offset,
                                    uint64_t item_bytes, uint64_t begin, uint64_t bytes, std::byte* to) {
  CAIRN_RETURN_IF_ERROR(ReadAt(file.fd.get(), file.path, item_offset + begin, bytes, to));
  if (file.imported) return absl::OkStatus();
  if (item >= file.blocks.size() || file.blocks[item].size() != ChecksumBlockCount(item_bytes)) {
    return MakeError(Reason::kBadSafetensors,
                     absl::StrCat(file.path, ": its header has ", name, " not as the manifest"),
                     {{"file", file.path}, {"tensor", name}});
  }
  for (uint64_t at = 0; at < bytes; at += kChecksumBlockBytes) {
    const uint64_t size = std::min(kChecksumBlockBytes, bytes - at);
    const uint32_t found = Crc32c(to + at, size), expected = file.blocks[item][(begin + at) / kChecksumBlockBytes];
    if (found == expected) continue;
    const uint64_t offset = item_offset + begin + at;
    return MakeError(
        Reason::kChecksumMismatch,
        absl::StrCat(file.path, " at ", offset, ": ", name, " has CRC32C ", absl::Hex(found, absl::kZeroPad8),
                     ", expected ", absl::Hex(expected, absl::kZeroPad8)),
        {{"file", file.path}, {"offset", absl::StrCat(offset)}, {"tensor", name}});
  }
  return absl::OkStatus();
}

}  // namespace cairn

#include "foreign/tensors/item_reader.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/base/crc32c.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "store/open/place.h"

namespace cairn {

absl::StatusOr<std::unique_ptr<StoredFile>> ItemReader::OpenReader(const ManifestFile& file) {
  OpenOptions options = {.cache = Cache::kSpare, .bytes = file.bytes()};
  if (!file.imported()) return storage_->Open(absl::StrCat(manifest_.job, "/", manifest_.path_of(file)), options);
  options.modified_ns = file.modified_ns;
  // The reader that made the manifest has resolved the links in file names.
  return OpenAnywhere(file.name, options);
}

absl::StatusOr<ItemReader::File*> ItemReader::Open(uint32_t number) {
  MutexLock lock(mutex_);
  std::unique_ptr<File>& kept = files_[number];
  if (kept != nullptr) return kept.get();
  const ManifestFile& file = manifest_.files[number];
  auto opened = std::make_unique<File>();
  opened->imported = file.imported();
  opened->path = file.imported() ? file.name : absl::StrCat(manifest_.job, "/", manifest_.path_of(file));
  CAIRN_ASSIGN_OR_RETURN(opened->reader, OpenReader(file));
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
  CAIRN_RETURN_IF_ERROR(opened.reader->Read(0, header.size(), header.data(), /*in_place=*/false));
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

ItemReader::Part ItemReader::PartOf(const ManifestShard& shard, uint64_t begin, uint64_t bytes) const {
  return {manifest_.tensors[shard.tensor].name, shard.item, shard.file_offset, shard.bytes, begin, bytes};
}

absl::Status ItemReader::Read(const ManifestShard& shard, uint64_t begin, uint64_t bytes, std::byte* to,
                              std::byte* scratch) {
  CAIRN_ASSIGN_OR_RETURN(File * file, Open(shard.file));
  const Part part = PartOf(shard, begin, bytes);
  const StoredFile::Way way = file->reader->Begin(part.offset(), bytes);
  if (way != StoredFile::Way::kDirect) return ReadPart(*file, part, way, to, /*in_place=*/false, nullptr);
  const uint64_t rests = part.offset() | bytes | reinterpret_cast<uintptr_t>(to);
  if (rests % kReadAlignment == 0) return ReadPart(*file, part, way, to, /*in_place=*/true, nullptr);
  return ReadPart(*file, part, way, scratch + part.offset() % kReadAlignment, /*in_place=*/true, to);
}

absl::StatusOr<const std::byte*> ItemReader::ReadInto(const ManifestShard& shard, uint64_t begin, uint64_t bytes,
                                                      std::byte* scratch) {
  CAIRN_ASSIGN_OR_RETURN(File * file, Open(shard.file));
  const Part part = PartOf(shard, begin, bytes);
  std::byte* const to = scratch + part.offset() % kReadAlignment;
  const StoredFile::Way way = file->reader->Begin(part.offset(), bytes);
  CAIRN_RETURN_IF_ERROR(ReadPart(*file, part, way, to, /*in_place=*/true, nullptr));
  return to;
}

absl::StatusOr<std::string> ItemReader::Read(const ManifestObject& object) {
  CAIRN_ASSIGN_OR_RETURN(File * file, Open(object.file));
  std::string bytes(object.slot_bytes, '\0');
  const Part part = {object.name, object.item, object.file_offset, object.slot_bytes, 0, object.slot_bytes};
  const StoredFile::Way way = file->reader->Begin(part.offset(), part.bytes);
  CAIRN_RETURN_IF_ERROR(
      ReadPart(*file, part, way, reinterpret_cast<std::byte*>(bytes.data()), /*in_place=*/false, nullptr));
  bytes.resize(object.bytes);
  return bytes;
}

absl::Status ItemReader::ReadPart(File& file, const Part& part, StoredFile::Way way, std::byte* to, bool in_place,
                                  std::byte* copied) {
  const bool direct = way == StoredFile::Way::kDirect;
  const auto read = [&](uint64_t at, uint64_t size) {
    return file.reader->Read(way, part.offset() + at, size, reinterpret_cast<char*>(to + at), in_place);
  };
  if (direct) CAIRN_RETURN_IF_ERROR(read(0, part.bytes));
  for (uint64_t at = 0; at < part.bytes; at += kChecksumBlockBytes) {
    const uint64_t size = std::min(kChecksumBlockBytes, part.bytes - at);
    // Bytes from the page cache are verified at once, while the processor's cache has them.
    if (!direct) CAIRN_RETURN_IF_ERROR(read(at, size));
    CAIRN_RETURN_IF_ERROR(Verify(file, part, at, to + at, size));
    if (copied != nullptr) std::memcpy(copied + at, to + at, size);
  }
  return absl::OkStatus();
}

absl::Status ItemReader::Verify(const File& file, const Part& part, uint64_t at, const std::byte* bytes,
                                uint64_t size) const {
  if (file.imported) return absl::OkStatus();
  if (part.item >= file.blocks.size() || file.blocks[part.item].size() != ChecksumBlockCount(part.item_bytes)) {
    return MakeError(Reason::kBadSafetensors,
                     absl::StrCat(file.path, ": its header has ", part.name, " not as the manifest"),
                     {{"file", file.path}, {"tensor", part.name}});
  }
  const uint32_t found = Crc32c(bytes, size);
  const uint32_t expected = file.blocks[part.item][(part.begin + at) / kChecksumBlockBytes];
  if (found == expected) return absl::OkStatus();
  const uint64_t offset = part.offset() + at;
  return MakeError(Reason::kChecksumMismatch,
                   absl::StrCat(file.path, " at ", offset, ": ", part.name, " has CRC32C ",
                                absl::Hex(found, absl::kZeroPad8), ", expected ", absl::Hex(expected, absl::kZeroPad8)),
                   {{"file", file.path}, {"offset", absl::StrCat(offset)}, {"tensor", part.name}});
}

}  // namespace cairn

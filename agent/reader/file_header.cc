#include "agent/reader/file_header.h"

#include <map>

#include "absl/strings/str_cat.h"
#include "common/base/crc32c.h"
#include "common/status/reason.h"
#include "common/status/status.h"

namespace cairn {
namespace {

std::string Hex(uint32_t value) { return absl::StrCat(absl::Hex(value, absl::kZeroPad8)); }

}  // namespace

absl::Status FileHeader::Take(std::string bytes) {
  const uint32_t crc32c = Crc32c(bytes.data(), bytes.size());
  if (crc32c != plan_.header_crc32c()) {
    return MakeError(Reason::kChecksumMismatch,
                     absl::StrCat(path_, ": the header of ", bytes.size(), " bytes has CRC32C ", Hex(crc32c),
                                  ", its manifest says ", Hex(plan_.header_crc32c())),
                     {{"file", path_}, {"offset", "0"}});
  }
  MutexLock lock(mutex_);
  if (!parsed_) bytes_ = std::move(bytes);
  return absl::OkStatus();
}

absl::StatusOr<const ItemChecksums*> FileHeader::Checksums(size_t item) {
  MutexLock lock(mutex_);
  if (!parsed_) {
    parsed_ = true;
    error_ = Parse(std::exchange(bytes_, std::string()));
  }
  CAIRN_RETURN_IF_ERROR(error_);
  return &checksums_[item];
}

absl::Status FileHeader::Parse(const std::string& bytes) {
  auto header = ParseHeader(bytes);
  if (!header.ok()) return Annotate(header.status(), path_, {{"file", path_}});
  std::map<std::string, const ParsedItem*> by_name;
  for (const ParsedItem& parsed : header->items) by_name[parsed.item.stored_name()] = &parsed;
  for (int i = 0; i < plan_.item_names_size(); ++i) {
    const auto found = by_name.find(plan_.item_names(i));
    if (found == by_name.end() || header->header_bytes + found->second->begin != plan_.item_offsets(i) ||
        found->second->item.bytes() != plan_.item_sizes(i)) {
      return MakeError(Reason::kBadSafetensors,
                       absl::StrCat(path_, ": its header has ", plan_.item_names(i), " elsewhere than the manifest"),
                       {{"file", path_}, {"tensor", plan_.item_names(i)}});
    }
    checksums_.push_back(found->second->checksums);
  }
  return absl::OkStatus();
}

absl::Status FileHeader::Mismatch(size_t item, uint64_t offset, uint32_t found, uint32_t expected) const {
  const std::string& name = plan_.item_names(static_cast<int>(item));
  return MakeError(
      Reason::kChecksumMismatch,
      absl::StrCat(path_, " at ", offset, ": ", name, " has CRC32C ", Hex(found), ", expected ", Hex(expected)),
      {{"file", path_}, {"offset", absl::StrCat(offset)}, {"tensor", name}});
}

}  // namespace cairn

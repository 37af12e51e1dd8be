#include "store/storage/stored_file.h"

#include "absl/strings/str_cat.h"
#include "common/status/reason.h"
#include "common/status/status.h"

namespace cairn {

absl::Status StoredFile::Read(uint64_t offset, uint64_t size, char* to, bool in_place) {
  // With Cache::kUse no call of Begin is needed: to ask what is cached costs as much as to read a small range.
  return Read(cache_ == Cache::kUse ? Way::kBuffered : Begin(offset, size), offset, size, to, in_place);
}

absl::StatusOr<UniqueFd> StoredFile::Share() const {
  return MakeError(Reason::kUnsupported, absl::StrCat(path(), " has no descriptor"), {{"file", path()}});
}

absl::StatusOr<std::string> ReadPart(StoredFile& file, uint64_t offset, uint64_t size) {
  std::string bytes(size, '\0');
  CAIRN_RETURN_IF_ERROR(file.Read(offset, size, bytes.data()));
  return bytes;
}

absl::StatusOr<std::string> ReadAll(StoredFile& file, uint64_t max_bytes) {
  if (file.bytes() <= max_bytes) return ReadPart(file, 0, file.bytes());
  return MakeError(Reason::kMessageTooLarge,
                   absl::StrCat(file.path(), " has ", file.bytes(), " bytes, at most ", max_bytes, " are read"),
                   {{"file", file.path()}});
}

}  // namespace cairn

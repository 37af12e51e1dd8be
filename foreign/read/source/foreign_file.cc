#include "foreign/read/source/foreign_file.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "store/open/place.h"

namespace cairn {

ForeignFile::ForeignFile(std::unique_ptr<StoredFile> file)
    : path_(file->path()),
      bytes_(file->bytes()),
      modified_ns_(absl::ToUnixNanos(file->modified())),
      identity_(file->identity()),
      file_(std::move(file)) {}

absl::StatusOr<ForeignFile> ForeignFile::Open(const std::string& path) {
  CAIRN_ASSIGN_OR_RETURN(const std::string resolved, ResolvePath(path));
  return OpenResolved(resolved);
}

absl::StatusOr<ForeignFile> ForeignFile::OpenResolved(const std::string& path) {
  CAIRN_ASSIGN_OR_RETURN(auto file, OpenAnywhere(path));
  return ForeignFile(std::move(file));
}

absl::StatusOr<ForeignFile> ForeignFile::OpenBelow(const std::string& directory, std::string_view name) {
  CAIRN_ASSIGN_OR_RETURN(const std::string path, ResolveBelow(directory, name));
  return OpenResolved(path);
}

absl::StatusOr<ForeignFile> ForeignFile::OpenWhole(const std::string& directory, std::string_view name,
                                                   uint64_t most_bytes) {
  CAIRN_ASSIGN_OR_RETURN(ForeignFile file, OpenBelow(directory, name));
  if (file.bytes() <= most_bytes) return file;
  return MakeError(Reason::kBadForeignFile, absl::StrCat(file.path(), " has ", file.bytes(), " bytes"),
                   {{"file", file.path()}});
}

absl::StatusOr<std::string> ForeignFile::Read(uint64_t offset, uint64_t bytes) const {
  if (bytes > bytes_ || offset > bytes_ - bytes) {
    return MakeError(Reason::kFileTruncated,
                     absl::StrCat(path_, " has ", bytes_, " bytes, but ", bytes, " bytes at ", offset, " are named"),
                     {{"file", path_}, {"offset", absl::StrCat(offset)}});
  }
  return ReadPart(*file_, offset, bytes);
}

void ForeignFile::AddTo(Digester& digester) const { digester.Add(path_).Add(bytes_).Add(identity_); }

}  // namespace cairn

#include "common/file/file_advice.h"

#include <unistd.h>

#include <cerrno>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/status/reason.h"

namespace cairn {

std::string NextWithoutFile(int error, const std::string& path, const std::string& flag) {
  const std::string elsewhere = absl::StrCat(", or give another directory by ", flag, ".");
  switch (error) {
    case ENOSPC:
    case EDQUOT:
      return absl::StrCat(
          "Make room in the file system of ", path,
          ": remove files there, or raise its limits of bytes and of files (in Kubernetes the emptyDir's "
          "sizeLimit)",
          elsewhere);
    case EROFS:
      return absl::StrCat("Mount a volume that can be written at or above ", path, " (in Kubernetes an emptyDir)",
                          elsewhere);
    case ENOENT:
    case ENOTDIR:
      return absl::StrCat("Mount or make the directory above ", path, elsewhere);
    case EACCES:
    case EPERM:
      return absl::StrCat("Let user ", geteuid(), " write to the directory above ", path, " (in Kubernetes by fsGroup)",
                          elsewhere);
    default:
      return "";
  }
}

absl::Status WithNextWithoutFile(const absl::Status& status, const std::string& path, const std::string& flag) {
  const auto metadata = MetadataOf(status);
  const auto number = metadata.find("errno");
  int error = 0;
  if (number == metadata.end() || !absl::SimpleAtoi(number->second, &error)) return status;
  const std::string next = NextWithoutFile(error, path, flag);
  return next.empty() ? status : WithMetadata(status, {{"next", next}});
}

}  // namespace cairn

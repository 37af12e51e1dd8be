#include "common/file/own_directory.h"

#include "absl/strings/str_cat.h"

namespace cairn {

std::string WhyNotOwn(const struct stat& info, uid_t uid) {
  if (!S_ISDIR(info.st_mode)) return "is no directory";
  if (info.st_uid != uid) return absl::StrCat("belongs to user ", info.st_uid, ", not to ", uid);
  if ((info.st_mode & (S_IWGRP | S_IWOTH)) != 0) return "may be written by others: chmod go-w it";
  return "";
}

}  // namespace cairn

#include "foreign/read/source/foreign_file.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <climits>
#include <cstdlib>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/shell_word.h"
#include "common/file/errno_error.h"
#include "common/file/full_transfer.h"
#include "common/status/reason.h"
#include "common/status/status.h"

namespace cairn {

absl::StatusOr<std::string> ResolvePath(const std::string& path) {
  const std::unique_ptr<char, void (*)(void*)> real(realpath(path.c_str(), nullptr), std::free);
  if (real == nullptr) return ErrnoError(errno, "open", path);
  return std::string(real.get());
}

bool IsPathBelow(std::string_view path) {
  if (path.empty() || path.find('\0') != std::string_view::npos) return false;
  for (const absl::string_view part : absl::StrSplit(absl::string_view(path.data(), path.size()), '/')) {
    if (part.empty() || part == "." || part == "..") return false;
  }
  return true;
}

bool IsInStore(const std::string& directory, std::string_view path) {
  const auto holds = [&](std::string_view store) {
    const std::string blobs = absl::StrCat(absl::string_view(store.data(), store.size()), "/blobs/");
    return !store.empty() && path.starts_with(blobs) && path.size() > blobs.size() &&
           path.find('/', blobs.size()) == std::string_view::npos;
  };
  constexpr std::string_view kSnapshots = "/snapshots/";
  std::string_view around = directory;
  for (int level = 0; level < 2; ++level) {
    around = around.substr(0, around.find_last_of('/') == around.npos ? 0 : around.find_last_of('/'));
    if (holds(around)) return true;
  }
  for (size_t at = directory.find(kSnapshots); at != directory.npos; at = directory.find(kSnapshots, at + 1)) {
    if (holds(std::string_view(directory).substr(0, at))) return true;
  }
  return false;
}

absl::StatusOr<ForeignFile> ForeignFile::Open(const std::string& path) {
  ForeignFile file;
  file.path_ = path;
  file.fd_ = UniqueFd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!file.fd_.valid()) return ErrnoError(errno, "open", path);
  struct stat info;
  if (fstat(file.fd_.get(), &info) != 0) return ErrnoError(errno, "stat", path);
  if (S_ISDIR(info.st_mode)) return ErrnoError(EISDIR, "read", path);
  if (!S_ISREG(info.st_mode)) {
    return MakeError(Reason::kBadForeignFile, absl::StrCat(path, " is no regular file"), {{"file", path}});
  }
  file.bytes_ = static_cast<uint64_t>(info.st_size);
  file.seconds_ = static_cast<uint64_t>(info.st_mtim.tv_sec);
  file.nanoseconds_ = static_cast<uint64_t>(info.st_mtim.tv_nsec);
  file.inode_ = info.st_ino;
  file.changed_ =
      static_cast<uint64_t>(info.st_ctim.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(info.st_ctim.tv_nsec);
  return file;
}

absl::StatusOr<ForeignFile> ForeignFile::OpenBelow(const std::string& directory, std::string_view name) {
  CAIRN_ASSIGN_OR_RETURN(const std::string path, ResolvePath(absl::StrCat(directory, "/", std::string(name))));
  if (!path.starts_with(directory == "/" ? directory : directory + "/") && !IsInStore(directory, path)) {
    return MakeError(
        Reason::kPathEscape,
        absl::StrCat(directory, "/", std::string(name), " leads to ", path, ", outside of the directory"),
        {{"file", path},
         {"next", absl::StrCat("If that file is meant, copy the directory with what its links lead to, `cp -rL ",
                               ForShell(directory), " COPY`, and give COPY.")}});
  }
  return Open(path);
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
  std::string text(bytes, '\0');
  size_t got = 0;
  if (const int error = ReadFullyAt(fd_.get(), text.data(), bytes, offset, got); error != 0) {
    return ErrnoError(error, "read", path_);
  }
  if (got == bytes) return text;
  return MakeError(Reason::kFileTruncated,
                   absl::StrCat(path_, " ends at ", offset + got, ", expected ", offset + bytes), {{"file", path_}});
}

// A copy that has replaced the file may have the same time of modification, but not the same inode and time of last
// change.
void ForeignFile::AddTo(Digester& digester) const {
  digester.Add(path_).Add(bytes_).Add(seconds_).Add(nanoseconds_).Add(inode_).Add(changed_);
}

}  // namespace cairn

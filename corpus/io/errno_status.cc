#include "corpus/io/errno_status.h"

#include <sys/stat.h>

#include <cerrno>
#include <filesystem>
#include <string>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "common/base/shell_word.h"
#include "common/file/atomic_write.h"
#include "common/file/errno_error.h"
#include "common/status/reason.h"

namespace cairn::corpus {
namespace {

// Names what stands where `path` needs a directory: a file, or a link that leads nowhere. OK if nothing is in its way.
absl::Status NoDirectory(std::string_view path) {
  std::filesystem::path component;
  for (const std::filesystem::path& name : std::filesystem::path(path).parent_path()) {
    component /= name;
    const std::string text = component.string();
    struct stat info;
    if (stat(text.c_str(), &info) == 0 && S_ISDIR(info.st_mode)) continue;
    if (lstat(text.c_str(), &info) != 0) return absl::OkStatus();
    std::string what = "is no directory";
    if (S_ISLNK(info.st_mode)) {
      std::error_code ignored;
      what = absl::StrCat("is a link to ", std::filesystem::read_symlink(component, ignored).string(),
                          ", where no directory is");
    }
    return MakeError(Reason::kStorageError, absl::StrCat("create ", std::string(path), ": ", text, " ", what),
                     {{"file", std::string(path)},
                      {"next", absl::StrCat("Give another place for the output, or move ", text, " away.")}});
  }
  return absl::OkStatus();
}

// Says that the directory of `path` is missing, and how to make it.
absl::Status MissingDirectory(std::string_view path) {
  const std::string directory = DirectoryOf(std::string(path));
  return MakeError(
      Reason::kStorageError, absl::StrCat("create ", std::string(path), ": there is no directory ", directory),
      {{"file", std::string(path)}, {"next", absl::StrCat("Make it first: mkdir -p ", ForShell(directory))}});
}

}  // namespace

absl::Status OutputError(std::string_view action, std::string_view path, int error) {
  if (action == "create" && (error == ENOENT || error == ENOTDIR || error == EEXIST)) {
    if (absl::Status no_directory = NoDirectory(path); !no_directory.ok()) return no_directory;
  }
  std::error_code unknown;
  if (error == ENOENT && action == "create" &&
      !std::filesystem::is_directory(DirectoryOf(std::string(path)), unknown)) {
    return MissingDirectory(path);
  }
  if (error == ENOSPC || error == EDQUOT) {
    // The usual advice is about checkpoints.
    return WithMetadata(ErrnoError(error, action, path),
                        {{"next", "Free space there, or write to another place, and give the same command again."}});
  }
  if (error == ENOENT || error == ELOOP) return ErrnoError(Reason::kStorageError, error, action, path);
  return ErrnoError(error, action, path);
}

absl::Status InputError(std::string_view action, std::string_view path, int error) {
  return ErrnoError(Reason::kInputUnreadable, error, action, path);
}

}  // namespace cairn::corpus

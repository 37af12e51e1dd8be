#include "corpus/io/made_directory.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "common/base/shell_word.h"
#include "common/file/atomic_write.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "corpus/io/errno_status.h"
#include "corpus/io/object_stores.h"

namespace cairn::corpus {
namespace {

constexpr int kTries = 3;

bool IsDirectory(const std::string& path) {
  std::error_code error;
  return std::filesystem::is_directory(path, error);
}

// Adds to `made` what it makes, also if it fails. Returns an errno.
int Make(const std::string& directory, std::vector<std::string>& made) {
  // Other runs may make or remove a directory above meanwhile.
  for (int tries = 0; tries < kTries; ++tries) {
    if (mkdir(directory.c_str(), 0777) == 0) {
      made.push_back(directory);
      return 0;
    }
    const int error = errno;
    if (IsDirectory(directory)) return 0;
    if (error != ENOENT) return error;
    std::string above = directory;
    while (above.size() > 1 && above.ends_with('/')) above.pop_back();
    above = DirectoryOf(above);
    if (above == directory) return error;
    if (IsDirectory(above)) continue;  // another run has made it just now
    if (const int failed = Make(above, made); failed != 0) return failed;
  }
  return ENOENT;
}

}  // namespace

absl::StatusOr<MadeDirectory> MadeDirectory::Of(const std::string& path) {
  MadeDirectory directory;
  if (StoresOf(path) != nullptr) return directory;
  const std::string name = DirectoryOf(path);
  // An address that is written wrong is no name that somebody wants a directory to have.
  if (path.find("://") != std::string::npos && !IsDirectory(name)) {
    return MakeError(Reason::kStorageError, absl::StrCat("create ", path, ": there is no directory ", name),
                     {{"file", path},
                      {"next", absl::StrCat("If it is an address, give it alone, from its scheme on. If it is a "
                                            "path, make the directory first: mkdir -p ",
                                            ForShell(name))}});
  }
  if (const int error = Make(name, directory.made_); error != 0) return OutputError("create", path, error);
  return directory;
}

MadeDirectory::~MadeDirectory() {
  while (!made_.empty() && rmdir(made_.back().c_str()) == 0) made_.pop_back();
}

}  // namespace cairn::corpus

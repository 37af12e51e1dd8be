#include "corpus/bpe/work_directory.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "corpus/io/errno_status.h"
#include "corpus/io/hidden_file.h"

namespace cairn::corpus {
namespace {

constexpr int kTries = 3;

}  // namespace

absl::StatusOr<std::unique_ptr<WorkDirectory>> WorkDirectory::Open(const std::string& path, bool resume) {
  bool busy = false;
  // A run that ends may remove the directory, or one above, while this one opens it.
  for (int tries = 0; tries < kTries; ++tries) {
    CAIRN_ASSIGN_OR_RETURN(MadeDirectory above, MadeDirectory::Of(path));
    if (mkdir(path.c_str(), 0777) != 0 && errno != EEXIST && errno != ENOENT) return OutputError("create", path, errno);
    UniqueFd held(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!held.valid() && errno != ENOENT) return OutputError("open", path, errno);
    if (held.valid() && LockHidden(held.get())) {
      return std::unique_ptr<WorkDirectory>(new WorkDirectory(path, std::move(above), std::move(held), resume));
    }
    busy = held.valid();
  }
  if (!busy) return OutputError("open", path, ENOENT);
  return MakeError(Reason::kBadRequest, absl::StrCat("another run counts in ", path),
                   {{"file", path}, {"next", "Wait until it has ended, or give another --output or --temp-dir."}});
}

WorkDirectory::~WorkDirectory() {
  std::error_code ignored;
  if (keep_) {
    rmdir(path_.c_str());
  } else {
    std::filesystem::remove_all(path_, ignored);
  }
}

}  // namespace cairn::corpus

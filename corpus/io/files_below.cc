#include "corpus/io/files_below.h"

#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "common/status/reason.h"
#include "corpus/io/errno_status.h"
#include "corpus/io/object_stores.h"
#include "corpus/io/open_source.h"

namespace cairn::corpus {
namespace {

namespace fs = std::filesystem;

std::string SortName(const std::string& path) {
  return CompressionOf(path) == Compression::kNone ? path : path.substr(0, path.rfind('.'));
}

}  // namespace

void SortByName(std::vector<std::string>& paths) {
  std::sort(paths.begin(), paths.end(), [](const std::string& a, const std::string& b) {
    const std::string name_a = SortName(a), name_b = SortName(b);
    return name_a != name_b ? name_a < name_b : a < b;
  });
}

absl::StatusOr<std::vector<std::string>> FilesBelow(const std::string& directory) {
  std::vector<std::string> files;
  std::error_code error;
  fs::recursive_directory_iterator entry(directory, error);
  for (; !error && entry != fs::recursive_directory_iterator(); entry.increment(error)) {
    if (entry->path().filename().string().front() == '.') {
      if (entry->is_directory(error)) entry.disable_recursion_pending();
      continue;
    }
    if (entry->is_regular_file(error)) files.push_back(entry->path().string());
  }
  if (error) return InputError("list", directory, error.value());
  if (files.empty()) {
    return MakeError(Reason::kInputUnreadable, absl::StrCat("no file is below ", directory), {{"file", directory}});
  }
  SortByName(files);
  return files;
}

uint64_t BytesOf(const std::vector<std::string>& paths) {
  uint64_t bytes = 0;
  for (const std::string& path : paths) {
    if (const ObjectStores* const stores = StoresOf(path)) {
      const auto known = stores->Recall(path);
      if (known.has_value()) bytes += known->bytes;
      continue;
    }
    struct stat found;
    if (stat(path.c_str(), &found) == 0 && S_ISREG(found.st_mode)) bytes += static_cast<uint64_t>(found.st_size);
  }
  return bytes;
}

}  // namespace cairn::corpus

#include "corpus/io/hidden_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/random_id.h"
#include "common/file/atomic_write.h"
#include "common/file/retry.h"
#include "common/file/unique_fd.h"

namespace cairn::corpus {
namespace {

constexpr std::string_view kEnding = ".partial";
constexpr int kTokenBytes = 4;
constexpr std::string_view kHexDigits = "0123456789abcdef";

bool IsToken(std::string_view text) {
  return text.size() == 2 * kTokenBytes && text.find_first_not_of(kHexDigits) == std::string_view::npos;
}

std::vector<std::string> NamesIn(const std::string& directory) {
  std::vector<std::string> names;
  std::error_code error;
  for (std::filesystem::directory_iterator files(directory, error), end; !error && files != end;
       files.increment(error)) {
    names.push_back(files->path().filename().string());
  }
  return names;
}

bool Lock(int fd) {
  return RetryInterrupted([&] { return flock(fd, LOCK_EX | LOCK_NB); }) == 0;
}

// Opens what stands under a name, if it is of this kind and nobody who is alive holds it.
UniqueFd OpenLeft(const std::string& path, mode_t kind) {
  UniqueFd fd(open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  struct stat found;
  if (fd.valid() && fstat(fd.get(), &found) == 0 && (found.st_mode & S_IFMT) == kind && Lock(fd.get())) return fd;
  return UniqueFd();
}

}  // namespace

std::string FreshHiddenToken() { return RandomToken(kTokenBytes); }

std::string HiddenName(const std::string& path, std::string_view token) {
  const size_t slash = path.rfind('/');
  const std::string name = slash == std::string::npos ? path : path.substr(slash + 1);
  return absl::StrCat(DirectoryOf(path), "/.", name, ".", std::string(token), std::string(kEnding));
}

bool LockHidden(int fd) {
  if (!Lock(fd)) return errno != EWOULDBLOCK;
  struct stat found;
  return fstat(fd, &found) != 0 || found.st_nlink > 0;
}

void RemoveLeftHidden(const std::string& path, absl::FunctionRef<bool(std::string_view name)> is_part) {
  const size_t slash = path.rfind('/');
  const std::string own = slash == std::string::npos ? path : path.substr(slash + 1);
  const std::string directory = DirectoryOf(path);
  std::vector<std::string> hidden = NamesIn(directory);
  std::erase_if(hidden, [](const std::string& name) { return !name.starts_with('.') || !name.ends_with(kEnding); });
  // The file that stands for all of a run goes when its others are gone.
  for (const bool parts : {true, false}) {
    for (const std::string& name : hidden) {
      const std::string_view middle = std::string_view(name).substr(1, name.size() - 1 - kEnding.size());
      const size_t dot = std::min(middle.rfind('.'), middle.size());
      const std::string_view output = middle.substr(0, dot);
      const std::string_view token = middle.substr(std::min(dot + 1, middle.size()));
      if (!IsToken(token) || (parts ? output == own || !is_part(output) : output != own)) continue;
      const std::string of_run = HiddenName(path, token);
      const UniqueFd run = OpenLeft(of_run, S_IFREG);
      if (!run.valid() && access(of_run.c_str(), F_OK) == 0) continue;
      if (!parts) {
        if (run.valid()) unlink(of_run.c_str());
        continue;
      }
      // It may also be the only file of another run.
      const std::string file = absl::StrCat(directory, "/", name);
      if (OpenLeft(file, S_IFREG).valid()) unlink(file.c_str());
    }
  }
}

void RemoveLeftDirectories(const std::string& parent, std::string_view prefix) {
  for (const std::string& name : NamesIn(parent)) {
    if (!name.starts_with(prefix) || name.find_first_not_of(kHexDigits, prefix.size()) != std::string::npos) continue;
    const std::string path = absl::StrCat(parent, "/", name);
    const UniqueFd held = OpenLeft(path, S_IFDIR);
    std::error_code ignored;
    if (held.valid()) std::filesystem::remove_all(path, ignored);
  }
}

}  // namespace cairn::corpus

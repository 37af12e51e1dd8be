#include "corpus/io/output_place.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/file/atomic_write.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "corpus/io/errno_status.h"
#include "corpus/io/file_kind.h"
#include "corpus/io/object_stores.h"

namespace cairn::corpus {
namespace {

constexpr int kMaxLinks = 40;  // as the kernel follows

absl::Status IsDirectory(const std::string& path) {
  const std::string inside = absl::StrCat(path, path.ends_with('/') ? "" : "/", "NAME");
  return MakeError(Reason::kBadRequest, absl::StrCat("write ", path, ": it is a directory, and the output is a file"),
                   {{"file", path}, {"next", absl::StrCat("Give the file's name too: ", inside)}});
}

absl::StatusOr<OutputPlace> FindObjectPlace(const ObjectStores& stores, const std::string& address) {
  if (address.ends_with('/')) return IsDirectory(address);
  CAIRN_ASSIGN_OR_RETURN(std::string name, stores.NameOf(address));
  if (std::count(name.begin(), name.end(), '/') <= 2) return IsDirectory(name);  // a bucket
  return OutputPlace{.path = std::move(name), .object = true};
}

// Returns whether a link stands in /proc: it leads to an open file, which may have no name, and not to its text.
bool IsDescriptorLink(const std::string& path) {
  const UniqueFd link(open(path.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
  struct statfs found = {};
  return link.valid() && fstatfs(link.get(), &found) == 0 && found.f_type == PROC_SUPER_MAGIC;
}

// Returns the number of this process's descriptor that the link in /proc means, or -1.
int OwnDescriptor(const std::string& path) {
  const size_t slash = path.rfind('/');
  int number = -1;
  if (slash == std::string::npos || !absl::SimpleAtoi(path.substr(slash + 1), &number)) return -1;
  char directory[PATH_MAX];
  if (realpath(path.substr(0, slash).c_str(), directory) == nullptr) return -1;
  const std::string own = absl::StrCat("/proc/", getpid());
  const std::string_view found = directory;
  const bool mine = found.starts_with(own + "/") && found.ends_with("/fd");
  return mine ? number : -1;
}

// Returns "" if the link cannot be read; errno says why.
std::string LinkText(const std::string& path) {
  char text[PATH_MAX];
  const ssize_t size = readlink(path.c_str(), text, sizeof text);
  return {text, static_cast<size_t>(std::max<ssize_t>(size, 0))};
}

}  // namespace

absl::StatusOr<OutputPlace> FindOutputPlace(const std::string& path) {
  if (path == "-") return OutputPlace{.path = path, .stream = true, .descriptor = STDOUT_FILENO};
  if (const ObjectStores* const stores = StoresOf(path)) return FindObjectPlace(*stores, path);
  if (path.ends_with('/')) return IsDirectory(path);
  std::string place = path;
  struct stat found = {};
  for (int links = 0;; ++links) {
    if (lstat(place.c_str(), &found) != 0) {
      if (errno != ENOENT) return OutputError(errno == ENOTDIR ? "create" : "look at", place, errno);
      return OutputPlace{.path = place};
    }
    if (!S_ISLNK(found.st_mode)) break;
    if (links == kMaxLinks) return OutputError("follow", path, ELOOP);
    if (IsDescriptorLink(place)) {
      if (stat(place.c_str(), &found) == 0 && S_ISDIR(found.st_mode)) return IsDirectory(path);
      return OutputPlace{.path = path, .stream = true, .descriptor = OwnDescriptor(place)};
    }
    const std::string target = LinkText(place);
    if (target.empty()) return OutputError("read the link", place, errno);
    place = target.starts_with('/') ? target : absl::StrCat(DirectoryOf(place), "/", target);
  }
  if (S_ISDIR(found.st_mode)) return IsDirectory(path);
  if (S_ISREG(found.st_mode)) return OutputPlace{.path = place};
  return OutputPlace{.path = path, .stream = true};
}

absl::StatusOr<OutputPlace> FindReplaceable(const std::string& path) {
  CAIRN_ASSIGN_OR_RETURN(OutputPlace place, FindOutputPlace(path));
  if (!place.stream) return place;
  // The rename would take the name away from it: root would lose /dev/null, and the reader of a FIFO would wait
  // forever.
  struct stat found = {};
  const bool there = stat(path.c_str(), &found) == 0;
  const std::string kind =
      place.descriptor >= 0 || !there ? "an open descriptor" : std::string(FileKind(found.st_mode));
  return MakeError(Reason::kBadRequest,
                   absl::StrCat("write ", path, ": it is ", kind, ", and a whole file would take its place"),
                   {{"file", path}, {"next", "Give another name: a regular file's, or one that nothing has yet."}});
}

absl::StatusOr<UniqueFd> OpenStream(const OutputPlace& place) {
  const auto unusable = [&](std::string_view why) {
    return MakeError(Reason::kBadRequest, absl::StrCat("write ", place.path, ": ", std::string(why)),
                     {{"file", place.path}, {"next", "Give a file, a device, a FIFO, or - for standard output."}});
  };
  if (place.descriptor >= 0) {
    const int flags = fcntl(place.descriptor, F_GETFL);
    if (flags < 0) return unusable("the descriptor is closed");
    if ((flags & O_ACCMODE) == O_RDONLY) return unusable("the descriptor is open for reading only");
    UniqueFd fd(fcntl(place.descriptor, F_DUPFD_CLOEXEC, 0));
    if (!fd.valid()) return OutputError("open", place.path, errno);
    return fd;
  }
  struct stat found = {};
  if (stat(place.path.c_str(), &found) == 0 && S_ISSOCK(found.st_mode)) return unusable("it is a socket");
  // Only the descriptor of another process can lead to a regular file here.
  const int cut = S_ISREG(found.st_mode) ? O_TRUNC : 0;
  UniqueFd fd(open(place.path.c_str(), O_WRONLY | O_NOCTTY | O_CLOEXEC | cut));
  if (fd.valid()) return fd;
  if (errno == EINTR)
    return MakeError(Reason::kInterrupted, absl::StrCat("interrupted before ", place.path, " was open"));
  return OutputError("open", place.path, errno);
}

absl::Status CheckIsNoInput(const std::string& output, const std::string& input) {
  if (const ObjectStores* const stores = StoresOf(output)) {
    CAIRN_ASSIGN_OR_RETURN(const std::string name, stores->NameOf(output));
    if (StoresOf(input) == nullptr || stores->NameOf(input).value_or("") != name) return absl::OkStatus();
  } else {
    struct stat out = {}, in = {};
    if (stat(output.c_str(), &out) != 0 || stat(input.c_str(), &in) != 0) return absl::OkStatus();
    if (!S_ISREG(out.st_mode) || out.st_dev != in.st_dev || out.st_ino != in.st_ino) return absl::OkStatus();
  }
  return MakeError(Reason::kBadRequest, absl::StrCat("write ", output, ": it is the input, which would be lost"),
                   {{"file", output}, {"next", "Give the output another name."}});
}

std::string ScratchDirectoryFor(const std::string& path) {
  const auto place = FindOutputPlace(path);
  if (place.ok() && !place->stream && !place->object) return DirectoryOf(place->path);
  std::error_code error;
  const std::string directory = std::filesystem::temp_directory_path(error).string();
  return error ? "/tmp" : directory;
}

}  // namespace cairn::corpus

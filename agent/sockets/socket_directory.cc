#include "agent/sockets/socket_directory.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "common/base/digest.h"
#include "common/file/file_advice.h"
#include "common/file/own_directory.h"
#include "common/status/reason.h"
#include "common/status/status.h"

namespace cairn {
namespace {

constexpr size_t kMaxSocketPath = sizeof(sockaddr_un::sun_path) - 1;
// The longest name of a socket within the directory, with its '/'.
constexpr size_t kSocketNameRoom = 24;

absl::Status Fault(const std::string& path, std::string_view why) {
  return MakeError(Reason::kSocketDirectory, absl::StrCat(path, ": ", absl::string_view(why.data(), why.size())),
                   {{"directory", path}});
}

absl::Status Fault(const std::string& path, std::string_view what, int error) {
  const absl::Status fault = Fault(
      path, absl::StrCat(absl::string_view(what.data(), what.size()), ": ", std::generic_category().message(error)));
  const std::string next = NextWithoutFile(error, path, "--socket-directory");
  return next.empty() ? fault : WithMetadata(fault, {{"next", next}});
}

absl::Status MakeOwn(const std::string& path, mode_t mode) {
  if (mkdir(path.c_str(), mode) == 0) {
    if (chmod(path.c_str(), mode) != 0) return Fault(path, "its mode cannot be set", errno);
    return absl::OkStatus();
  }
  if (errno != EEXIST) return Fault(path, "it cannot be made", errno);
  struct stat info;
  if (lstat(path.c_str(), &info) != 0) return Fault(path, "its properties cannot be read", errno);
  if (const std::string why = WhyNotOwn(info, geteuid()); !why.empty()) return Fault(path, absl::StrCat("it ", why));
  if ((info.st_mode & 0777 & ~mode) != 0 && chmod(path.c_str(), mode) != 0) {
    return Fault(path, "its mode cannot be set", errno);
  }
  if (access(path.c_str(), W_OK | X_OK) != 0) return Fault(path, "it cannot be written", errno);
  return absl::OkStatus();
}

}  // namespace

std::string DefaultSocketDirectory(const std::string& job, uint32_t rank) {
  const char* runtime = std::getenv("XDG_RUNTIME_DIR");
  const std::string base = runtime != nullptr && runtime[0] == '/' && access(runtime, W_OK) == 0 ? runtime : "/tmp";
  std::string name = absl::StrCat(job, "-", rank);
  std::replace(name.begin(), name.end(), '/', '_');
  const std::string path = absl::StrCat(base, "/cairn-", geteuid(), "/");
  if (path.size() + name.size() + kSocketNameRoom > kMaxSocketPath) {
    name = absl::StrCat(DigestHex(Digest(job)).substr(0, 16), "-", rank);
  }
  return path + name;
}

absl::Status PrepareSocketDirectory(const std::string& path, bool others_may_enter) {
  if (path.size() + kSocketNameRoom > kMaxSocketPath) {
    return Fault(path, absl::StrCat("its path is longer than the ", kMaxSocketPath - kSocketNameRoom,
                                    " bytes that a socket allows"));
  }
  const mode_t mode = others_may_enter ? 0711 : 0700;
  const size_t cut = path.find_last_of('/');
  struct stat info;
  if (cut != std::string::npos && cut > 0 && stat(path.substr(0, cut).c_str(), &info) != 0 && errno == ENOENT) {
    CAIRN_RETURN_IF_ERROR(MakeOwn(path.substr(0, cut), mode));
  }
  return MakeOwn(path, mode);
}

absl::StatusOr<UniqueFd> ListenOnUnixSocket(const std::string& path, bool others_may_enter) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (path.size() > kMaxSocketPath) return Fault(path, "the path is too long for a socket");
  std::memcpy(address.sun_path, path.data(), path.size());
  // A listener whose process is stopped accepts nothing, but it exists: connect then gives EAGAIN.
  UniqueFd probe(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (connect(probe.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0 || errno == EAGAIN) {
    return Fault(path, "another agent listens there; give each its own --socket-directory");
  }
  unlink(path.c_str());
  UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return Fault(path, "no socket", errno);
  if (bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) {
    return Fault(path, "the socket cannot be bound", errno);
  }
  if (chmod(path.c_str(), others_may_enter ? 0666 : 0600) != 0 || listen(fd.get(), 128) != 0) {
    return Fault(path, "the socket cannot be used", errno);
  }
  return fd;
}

}  // namespace cairn

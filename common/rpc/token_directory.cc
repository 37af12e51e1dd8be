#include "common/rpc/token_directory.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <system_error>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/base/random_id.h"
#include "common/file/atomic_write.h"
#include "common/file/own_directory.h"
#include "common/file/retry.h"
#include "common/rpc/address.h"
#include "common/status/reason.h"
#include "common/status/status.h"

namespace cairn {
namespace {

constexpr char kTokens[] = "tokens";
constexpr size_t kMaxBytes = 4096;
// A copy is stale when it is this old: a coordinator renews its own each minute.
constexpr time_t kStaleSeconds = 10 * 60;
constexpr time_t kOldSeconds = 24 * 60 * 60;

absl::Status Unusable(std::string_view why) {
  return MakeError(Reason::kBadToken, absl::StrCat(absl::string_view(why.data(), why.size())));
}

absl::Status Unusable(int error) { return Unusable(std::generic_category().message(error)); }

// O_NOFOLLOW gives ELOOP or ENOTDIR for a link.
absl::Status CannotOpen(int error) {
  if (error == ENOENT) return absl::NotFoundError("is not there");
  if (error == ELOOP || error == ENOTDIR) return Unusable("is a link, or no directory");
  return Unusable(error);
}

std::string FileName(const std::string& address) {
  std::string name = address;
  const auto odd = [](unsigned char c) { return !std::isalnum(c) && c != '.' && c != '-'; };
  std::replace_if(name.begin(), name.end(), odd, '_');
  if (!name.empty() && name.front() == '.') name.front() = '_';
  return name.substr(0, 200);
}

// Returns whether nothing listens at the loopback address that is a copy's name. False for any other name.
bool IsRefused(const std::string& file) {
  const size_t cut = file.rfind('_');
  int port = 0;
  if (cut == std::string::npos || !absl::SimpleAtoi(file.substr(cut + 1), &port) || port <= 0 || port > 65535)
    return false;
  sockaddr_in four = {};
  sockaddr_in6 six = {};
  const bool is_four = inet_pton(AF_INET, file.substr(0, cut).c_str(), &four.sin_addr) == 1;
  if (!(is_four ? IsLoopback(file.substr(0, cut)) : file == FileName(absl::StrCat("[::1]:", port)))) return false;
  four.sin_family = AF_INET;
  six.sin6_family = AF_INET6;
  six.sin6_addr = in6addr_loopback;
  four.sin_port = six.sin6_port = htons(static_cast<uint16_t>(port));
  const UniqueFd tried(socket(is_four ? AF_INET : AF_INET6, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!tried.valid()) return false;
  const int connected = is_four ? connect(tried.get(), reinterpret_cast<const sockaddr*>(&four), sizeof(four))
                                : connect(tried.get(), reinterpret_cast<const sockaddr*>(&six), sizeof(six));
  if (connected == 0) return false;
  if (errno != EINPROGRESS) return errno == ECONNREFUSED;
  // Loopback refuses a connection at once, so if the connection has to wait, something listens.
  constexpr int kPatienceMs = 100;
  pollfd polled = {tried.get(), POLLOUT, 0};
  int error = 0;
  socklen_t length = sizeof(error);
  return poll(&polled, 1, kPatienceMs) == 1 && getsockopt(tried.get(), SOL_SOCKET, SO_ERROR, &error, &length) == 0 &&
         error == ECONNREFUSED;
}

// The file `newest` was written just now. Its time is that of the file system, like the others'; the clock of this
// process may be wrong, and the files of others that run must not be old by that.
void RemoveOld(int directory, const std::string& newest) {
  struct stat own;
  if (StatIn(directory, newest, own) != 0) return;
  const time_t now = own.st_mtime;
  UniqueFd again(RetryInterrupted([&] { return openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC); }));
  DIR* list = again.valid() ? fdopendir(again.get()) : nullptr;
  if (list == nullptr) return;
  again.release();  // the list owns it now
  while (const dirent* entry = readdir(list)) {
    struct stat info;
    if (StatIn(directory, entry->d_name, info) == 0 && S_ISREG(info.st_mode) &&
        (info.st_mtime < now - kOldSeconds || (info.st_mtime < now - kStaleSeconds && IsRefused(entry->d_name)))) {
      UnlinkIn(directory, entry->d_name);
    }
  }
  closedir(list);
}

// Opens a directory within `parent` that only this user may write to.
absl::StatusOr<UniqueFd> EnterOwn(int parent, const std::string& name, uid_t uid, bool make) {
  if (make && RetryInterrupted([&] { return mkdirat(parent, name.c_str(), 0700); }) != 0 && errno != EEXIST)
    return Unusable(errno);
  UniqueFd directory(
      RetryInterrupted([&] { return openat(parent, name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC); }));
  if (!directory.valid()) return CannotOpen(errno);
  struct stat info;
  if (StatOf(directory.get(), info) != 0) return Unusable(errno);
  if (const std::string why = WhyNotOwn(info, uid); !why.empty()) return Unusable(why);
  return directory;
}

}  // namespace

TokenDirectory TokenDirectory::OfThisUser() {
  const uid_t uid = geteuid();
  std::vector<std::string> bases;
  const char* runtime = std::getenv("XDG_RUNTIME_DIR");
  if (runtime != nullptr && runtime[0] == '/') bases.push_back(runtime);
  // With these bases a shell without XDG_RUNTIME_DIR (cron, ssh with a command) finds the copies of a login session.
  for (std::string base : {absl::StrCat("/run/user/", uid), std::string("/tmp")}) {
    if (std::find(bases.begin(), bases.end(), base) == bases.end()) bases.push_back(std::move(base));
  }
  return TokenDirectory(std::move(bases), uid);
}

std::string TokenDirectory::PathOf(const std::string& base) const {
  return absl::StrCat(base, "/cairn-", uid_, "/", kTokens);
}

absl::StatusOr<UniqueFd> TokenDirectory::Open(const std::string& base, bool make) const {
  UniqueFd directory(OpenNamedDirectory(base));
  if (!directory.valid()) return CannotOpen(errno);
  // Agents keep their sockets in the outer directory. With --allow-uid others may enter it, but never the inner one.
  CAIRN_ASSIGN_OR_RETURN(directory, EnterOwn(directory.get(), absl::StrCat("cairn-", uid_), uid_, make));
  CAIRN_ASSIGN_OR_RETURN(directory, EnterOwn(directory.get(), kTokens, uid_, make));
  if (make && fchmod(directory.get(), 0700) != 0) return Unusable(errno);
  return directory;
}

absl::StatusOr<std::vector<std::string>> TokenDirectory::ReadLines(int directory, const std::string& name) const {
  const UniqueFd file(RetryInterrupted(
      [&] { return openat(directory, name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC); }));
  if (!file.valid()) return CannotOpen(errno);
  struct stat info;
  if (StatOf(file.get(), info) != 0) return Unusable(errno);
  if (info.st_uid != uid_) return Unusable(absl::StrCat("belongs to user ", info.st_uid, ", not to ", uid_));
  if (!S_ISREG(info.st_mode) || info.st_nlink != 1) return Unusable("is no file of its own");
  if ((info.st_mode & (S_IRWXG | S_IRWXO)) != 0) return Unusable("can be read by others: chmod go= it");
  std::string text(kMaxBytes, '\0');
  const ssize_t bytes = ::read(file.get(), text.data(), text.size());
  if (bytes < 0) return Unusable(errno);
  text.resize(static_cast<size_t>(bytes));
  std::vector<std::string> lines = absl::StrSplit(text, '\n');
  if (lines.size() < 2 || lines[0].empty()) return Unusable("holds no token");
  return lines;
}

TokenDirectory::Found TokenDirectory::Find(std::string_view address) const {
  Found found;
  const auto without = [&](std::string path, const absl::Status& why) {
    if (absl::IsNotFound(why)) {
      found.absent.push_back(std::move(path));
    } else {
      found.refused.push_back(absl::StrCat(path, " ", why.message()));
    }
  };
  for (const std::string& base : bases_) {
    const auto directory = Open(base, false);
    if (!directory.ok()) {
      without(PathOf(base), directory.status());
      continue;
    }
    for (const std::string& each : CanonicalAddresses(address)) {
      const auto lines = ReadLines(directory->get(), FileName(each));
      if (!lines.ok()) {
        without(absl::StrCat(PathOf(base), "/", FileName(each)), lines.status());
      } else if (std::find(found.tokens.begin(), found.tokens.end(), lines->front()) == found.tokens.end()) {
        found.tokens.push_back(lines->front());
      }
    }
  }
  return found;
}

absl::Status TokenDirectory::Put(std::string_view address, std::string_view token, std::string_view owner) const {
  const std::string text = absl::StrCat(absl::string_view(token.data(), token.size()), "\n",
                                        absl::string_view(owner.data(), owner.size()), "\n");
  const auto put_in = [&](const std::string& base) -> absl::Status {
    CAIRN_ASSIGN_OR_RETURN(const UniqueFd directory, Open(base, true));
    for (const std::string& each : CanonicalAddresses(address)) {
      const std::string name = FileName(each);
      const AtomicWriteOptions options = {
          .replace = true, .durable = AtomicWriteOptions::Durable::kNothing, .mode = 0600};
      CAIRN_RETURN_IF_ERROR(WriteAtomically(directory.get(), name, text, options, name).put.status());
    }
    RemoveOld(directory.get(), FileName(CanonicalAddresses(address).front()));
    return absl::OkStatus();
  };
  std::vector<std::string> refused;
  for (const std::string& base : bases_) {
    const absl::Status status = put_in(base);
    if (status.ok()) return status;
    refused.push_back(absl::StrCat(PathOf(base), ": ", status.message()));
  }
  return MakeError(Reason::kBadToken,
                   absl::StrCat("no place for the token of ", std::string(address), ": ", absl::StrJoin(refused, "; ")),
                   {{"address", std::string(address)}});
}

void TokenDirectory::Remove(std::string_view address, std::string_view owner) const {
  const auto owned = [&](int directory, const std::string& name) {
    const auto lines = ReadLines(directory, name);
    return lines.ok() && (*lines)[1] == owner;
  };
  for (const std::string& base : bases_) {
    const auto opened = Open(base, false);
    if (!opened.ok()) continue;
    const int directory = opened->get();
    for (const std::string& each : CanonicalAddresses(address)) {
      const std::string name = FileName(each), taken = NewTemporaryName();
      if (!owned(directory, name)) continue;
      // The next coordinator here may put its own copy now. So the file is first renamed, then its owner is checked.
      if (renameat(directory, name.c_str(), directory, taken.c_str()) != 0) continue;
      if (!owned(directory, taken)) renameat2(directory, taken.c_str(), directory, name.c_str(), RENAME_NOREPLACE);
      UnlinkIn(directory, taken);
    }
  }
}

TokenCopy::TokenCopy(TokenDirectory directory, std::string address)
    : directory_(std::move(directory)), address_(std::move(address)), owner_(RandomToken(8)) {}

TokenCopy::~TokenCopy() { directory_.Remove(address_, owner_); }

absl::Status TokenCopy::Renew(std::string_view token) { return directory_.Put(address_, token, owner_); }

}  // namespace cairn

#include "agent/sockets/predecessor.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/file/full_transfer.h"
#include "common/file/posix.h"
#include "common/file/unique_fd.h"
#include "common/status/reason.h"
#include "common/status/status.h"

namespace cairn {
namespace {

constexpr size_t kMaxBytes = 32;

std::string FileIn(const std::string& directory) { return directory + "/incarnation"; }

}  // namespace

uint64_t PredecessorIn(const std::string& directory) {
  const UniqueFd fd(::open(FileIn(directory).c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  char text[kMaxBytes];
  const ssize_t got = fd.valid() ? ::read(fd.get(), text, sizeof(text)) : 0;
  uint64_t incarnation = 0;
  if (got <= 0) return 0;
  const absl::string_view digits = absl::StripAsciiWhitespace({text, static_cast<size_t>(got)});
  return digits.size() == 16 && absl::SimpleHexAtoi(digits, &incarnation) ? incarnation : 0;
}

absl::Status LeaveToSuccessor(const std::string& directory, uint64_t incarnation) {
  const std::string path = FileIn(directory);
  const std::string unfinished = path + ".new";
  int error = 0;
  {
    ::unlink(unfinished.c_str());
    const UniqueFd fd(::open(unfinished.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
    error = fd.valid() ? WriteFully(fd.get(), absl::StrCat(absl::Hex(incarnation, absl::kZeroPad16), "\n")) : errno;
  }
  if (error == 0 && std::rename(unfinished.c_str(), path.c_str()) != 0) error = errno;
  if (error == 0) return absl::OkStatus();
  return MakeError(Reason::kSocketDirectory, absl::StrCat("cannot write ", path, ": ", std::strerror(error)),
                   {{"file", path}});
}

}  // namespace cairn

#include "agent/sockets/predecessor.h"

#include <fcntl.h>
#include <unistd.h>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/file/atomic_write.h"
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
  const absl::Status written =
      WriteAtomically(path, absl::StrCat(absl::Hex(incarnation, absl::kZeroPad16), "\n"),
                      {.replace = true, .durable = AtomicWriteOptions::Durable::kNothing, .mode = 0600})
          .put.status();
  if (written.ok()) return written;
  return MakeError(Reason::kSocketDirectory, absl::StrCat("cannot leave it to the next agent: ", written.message()),
                   {{"file", path}});
}

}  // namespace cairn

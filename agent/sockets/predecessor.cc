#include "agent/sockets/predecessor.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/file/atomic_write.h"
#include "common/file/unique_fd.h"
#include "common/status/reason.h"
#include "common/status/status.h"

namespace cairn {
namespace {

constexpr size_t kMaxBytes = 256;
constexpr size_t kDigits = 16;

std::string FileIn(const std::string& directory) { return directory + "/incarnation"; }

// Returns the text behind the incarnation, which identifies the place; empty if the place is not known.
std::string NameOf(const AgentPlace& place) {
  struct stat found = {};
  if (place.boot_id.empty() || ::stat(place.directory.c_str(), &found) != 0) return "";
  return absl::StrCat(" ", place.boot_id, " ", found.st_dev, " ", found.st_ino);
}

}  // namespace

uint64_t PredecessorIn(const AgentPlace& place) {
  const UniqueFd fd(::open(FileIn(place.directory).c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  char text[kMaxBytes];
  const ssize_t got = fd.valid() ? ::read(fd.get(), text, sizeof(text)) : 0;
  if (got <= 0) return 0;
  const absl::string_view line = absl::StripTrailingAsciiWhitespace({text, static_cast<size_t>(got)});
  const std::string name = NameOf(place);
  uint64_t incarnation = 0;
  if (name.empty() || line.size() < kDigits || line.substr(kDigits) != name) return 0;
  return absl::SimpleHexAtoi(line.substr(0, kDigits), &incarnation) ? incarnation : 0;
}

absl::Status LeaveToSuccessor(const AgentPlace& place, uint64_t incarnation) {
  const std::string path = FileIn(place.directory);
  const std::string line = absl::StrCat(absl::Hex(incarnation, absl::kZeroPad16), NameOf(place), "\n");
  const absl::Status written =
      WriteAtomically(path, line, {.replace = true, .durable = AtomicWriteOptions::Durable::kNothing, .mode = 0600})
          .put.status();
  if (written.ok()) return written;
  return MakeError(Reason::kSocketDirectory,
                   absl::StrCat("the incarnation cannot be stored for the next agent: ", written.message()),
                   {{"file", path}});
}

}  // namespace cairn

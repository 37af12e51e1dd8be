#include "agent/sockets/predecessor.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/file/atomic_write.h"
#include "common/file/unique_fd.h"
#include "common/status/reason.h"
#include "common/status/status.h"

namespace cairn {
namespace {

constexpr size_t kMaxBytes = 512;
constexpr size_t kDigits = 16;
// Agents that end again and again before an answer must not make the file grow.
constexpr size_t kMost = 8;

std::string FileIn(const std::string& directory) { return directory + "/incarnation"; }

// Returns the text behind the incarnations, which identifies the place; empty if the place is not known.
std::string NameOf(const AgentPlace& place) {
  struct stat found = {};
  if (place.boot_id.empty() || ::stat(place.directory.c_str(), &found) != 0) return "";
  return absl::StrCat(" ", place.boot_id, " ", found.st_dev, " ", found.st_ino);
}

}  // namespace

std::vector<uint64_t> PredecessorsIn(const AgentPlace& place) {
  const UniqueFd fd(::open(FileIn(place.directory).c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  char text[kMaxBytes];
  const ssize_t got = fd.valid() ? ::read(fd.get(), text, sizeof(text)) : 0;
  if (got <= 0) return {};
  const absl::string_view line = absl::StripTrailingAsciiWhitespace({text, static_cast<size_t>(got)});
  const std::string name = NameOf(place);
  const absl::string_view numbers = line.substr(0, line.find(' '));
  if (name.empty() || line.substr(numbers.size()) != name) return {};
  std::vector<uint64_t> incarnations;
  for (const absl::string_view digits : absl::StrSplit(numbers, ',')) {
    uint64_t incarnation = 0;
    if (digits.size() != kDigits || !absl::SimpleHexAtoi(digits, &incarnation)) return {};
    incarnations.push_back(incarnation);
  }
  return incarnations;
}

absl::Status LeaveToSuccessor(const AgentPlace& place, const std::vector<uint64_t>& incarnations) {
  const std::string path = FileIn(place.directory);
  std::vector<std::string> numbers;
  for (size_t i = 0; i < incarnations.size(); ++i) {
    if (i == 0 || i + kMost > incarnations.size()) {
      numbers.push_back(absl::StrCat(absl::Hex(incarnations[i], absl::kZeroPad16)));
    }
  }
  const std::string line = absl::StrCat(absl::StrJoin(numbers, ","), NameOf(place), "\n");
  const absl::Status written =
      WriteAtomically(path, line, {.replace = true, .durable = AtomicWriteOptions::Durable::kNothing, .mode = 0600})
          .put.status();
  if (written.ok()) return written;
  return MakeError(Reason::kSocketDirectory,
                   absl::StrCat("the incarnation cannot be stored for the next agent: ", written.message()),
                   {{"file", path}});
}

}  // namespace cairn

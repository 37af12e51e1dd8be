#include "agent/sockets/process_status.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <string>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace cairn {
namespace {

// The text has about 1,500 bytes; the counts of switches are its last lines.
constexpr size_t kMaxStatusBytes = 8192;

bool HasEnded(const UniqueFd& process) {
  pollfd polled = {process.get(), POLLIN, 0};
  return poll(&polled, 1, 0) != 0;
}

}  // namespace

std::optional<ProcessLook> ParseProcessStatus(std::string_view text) {
  ProcessLook look;
  for (absl::string_view line : absl::StrSplit(absl::string_view(text.data(), text.size()), '\n')) {
    uint64_t count = 0;
    if (absl::ConsumePrefix(&line, "State:")) {
      line = absl::StripAsciiWhitespace(line);
      if (!line.empty()) look.state = line.front();
    } else if (absl::ConsumePrefix(&line, "voluntary_ctxt_switches:") ||
               absl::ConsumePrefix(&line, "nonvoluntary_ctxt_switches:")) {
      if (absl::SimpleAtoi(line, &count)) look.switches += count;
    }
  }
  if (look.state == 0) return std::nullopt;
  return look;
}

v1::JobRank::TrainerProcess StandingOf(const ProcessLook& now, const std::optional<ProcessLook>& before) {
  switch (now.state) {
    case 'T':
    case 't':
      return v1::JobRank::STOPPED;
    case 'Z':
    case 'X':
      return v1::JobRank::GONE;
    case 'D': {
      const bool stays = before.has_value() && before->state == 'D' && before->switches == now.switches;
      return stays ? v1::JobRank::UNINTERRUPTIBLE : v1::JobRank::RUNNING;
    }
    default:
      return v1::JobRank::RUNNING;
  }
}

std::unique_ptr<ProcessStatus> ProcessStatus::Open(pid_t pid, const UniqueFd& process) {
  if (pid <= 0 || !process.valid()) return nullptr;
  UniqueFd status(open(absl::StrCat("/proc/", pid, "/status").c_str(), O_RDONLY | O_CLOEXEC));
  // If the process has not ended by now, the file that was opened by its number is its own.
  if (!status.valid() || HasEnded(process)) return nullptr;
  return std::unique_ptr<ProcessStatus>(new ProcessStatus(std::move(status)));
}

v1::JobRank::TrainerProcess ProcessStatus::Look() {
  std::array<char, kMaxStatusBytes> text;
  ssize_t size = 0;
  do {
    size = pread(status_.get(), text.data(), text.size(), 0);
  } while (size < 0 && errno == EINTR);
  if (size < 0) return errno == ESRCH ? v1::JobRank::GONE : v1::JobRank::TRAINER_PROCESS_UNSPECIFIED;
  const auto look = ParseProcessStatus({text.data(), static_cast<size_t>(size)});
  if (!look.has_value()) return v1::JobRank::TRAINER_PROCESS_UNSPECIFIED;
  const v1::JobRank::TrainerProcess standing = StandingOf(*look, before_);
  before_ = look;
  return standing;
}

}  // namespace cairn

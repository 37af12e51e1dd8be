#include "benchmarks/control_plane/child_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "benchmarks/control_plane/event_loop.h"
#include "common/status/reason.h"

namespace cairn {
namespace {

// Runs in the child, between fork and exec.
[[noreturn]] void Become(char* const* arguments, int input, int output, const char* log) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  dup2(input, STDIN_FILENO);
  dup2(output, STDOUT_FILENO);
  if (*log != 0) {
    const int file = open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (file >= 0) dup2(file, STDERR_FILENO);
  }
  execv(arguments[0], arguments);
  _exit(127);
}

}  // namespace

absl::StatusOr<ChildProcess> ChildProcess::Start(const std::vector<std::string>& command, const std::string& log) {
  if (access(command[0].c_str(), X_OK) != 0) {
    return MakeError(Reason::kFileMissing, absl::StrCat(command[0], " is no program that can be started"));
  }
  int input[2], output[2];
  if (pipe2(input, O_CLOEXEC) != 0) return MakeError(Reason::kInternal, "no pipe can be made");
  ChildProcess child;
  const UniqueFd its_input(input[0]);
  child.input_ = UniqueFd(input[1]);
  if (pipe2(output, O_CLOEXEC) != 0) return MakeError(Reason::kInternal, "no pipe can be made");
  child.output_ = UniqueFd(output[0]);
  const UniqueFd its_output(output[1]);
  std::vector<char*> arguments;
  arguments.reserve(command.size() + 1);
  for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  child.pid_ = fork();
  if (child.pid_ == 0) Become(arguments.data(), its_input.get(), its_output.get(), log.c_str());
  if (child.pid_ < 0) return MakeError(Reason::kInternal, "no process can be made");
  return child;
}

ChildProcess::~ChildProcess() { Kill(); }

ChildProcess::ChildProcess(ChildProcess&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)),
      input_(std::move(other.input_)),
      output_(std::move(other.output_)),
      read_(std::move(other.read_)) {}

ChildProcess& ChildProcess::operator=(ChildProcess&& other) noexcept {
  std::swap(pid_, other.pid_);
  std::swap(input_, other.input_);
  std::swap(output_, other.output_);
  std::swap(read_, other.read_);
  return *this;
}

absl::StatusOr<std::string> ChildProcess::ReadLine(absl::Duration timeout) {
  const absl::Time deadline = SteadyNow() + timeout;
  for (;;) {
    if (const size_t end = read_.find('\n'); end != std::string::npos) {
      std::string line = read_.substr(0, end);
      read_.erase(0, end + 1);
      return line;
    }
    const absl::Duration left = deadline - SteadyNow();
    pollfd ready = {output_.get(), POLLIN, 0};
    char bytes[4096];
    if (left <= absl::ZeroDuration() || poll(&ready, 1, static_cast<int>(absl::ToInt64Milliseconds(left)) + 1) < 0) {
      return MakeError(Reason::kInternal, "a process that was started says nothing");
    }
    if (ready.revents == 0) continue;
    const ssize_t got = read(output_.get(), bytes, sizeof(bytes));
    if (got <= 0) return MakeError(Reason::kInternal, "a process that was started has ended");
    read_.append(bytes, static_cast<size_t>(got));
  }
}

void ChildProcess::Kill() {
  if (pid_ <= 0) return;
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
  pid_ = -1;
}

absl::Duration ChildProcess::CpuTime() const {
  clockid_t clock;
  timespec time = {};
  if (pid_ <= 0 || clock_getcpuclockid(pid_, &clock) != 0 || clock_gettime(clock, &time) != 0) {
    return absl::ZeroDuration();
  }
  return absl::DurationFromTimespec(time);
}

uint64_t ChildProcess::Status(const std::string& field) const {
  std::ifstream file(absl::StrCat("/proc/", pid_, "/status"));
  std::string word;
  while (file >> word) {
    uint64_t kib = 0;
    if (word == field && file >> kib) return kib << 10;
  }
  return 0;
}

}  // namespace cairn

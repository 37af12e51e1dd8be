#include "cli/local/child_process.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <fstream>
#include <iterator>
#include <string_view>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "cli/base/interrupt.h"
#include "common/base/clock.h"
#include "common/base/duration_text.h"
#include "common/file/errno_error.h"

namespace cairn::cli {
namespace {

// Returns the end of a log, which may be long.
std::string LogTail(const std::string& path) {
  constexpr std::streamoff kBytes = 4096;
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  file.seekg(std::max<std::streamoff>(0, static_cast<std::streamoff>(file.tellg()) - kBytes));
  std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  absl::StripTrailingAsciiWhitespace(&text);
  return text;
}

std::string LastLines(const std::string& path) {
  constexpr size_t kBytes = 250;  // at most half of a message's 512 bytes
  const std::string text = LogTail(path);
  if (text.empty()) return "nothing";
  if (text.size() <= kBytes) return text;
  const size_t cut = text.size() - kBytes;
  const size_t line = text.find('\n', cut);
  return text.substr(line == std::string::npos ? cut : line + 1);
}

// Returns the last "error: REASON: text" that a service has printed.
std::optional<std::pair<Reason, std::string>> ErrorInLog(const std::string& path) {
  std::optional<std::pair<Reason, std::string>> found;
  for (const absl::string_view line : absl::StrSplit(LogTail(path), '\n')) {
    const std::vector<std::string> parts = absl::StrSplit(line, absl::MaxSplits(": ", 2));
    if (parts.size() != 3 || parts[0] != "error") continue;
    if (const auto reason = ReasonFromName(parts[1])) found.emplace(*reason, parts[2]);
  }
  return found;
}

// Returns the error of a child with `name.reason`: what it did, and the end of its log.
absl::Status ErrorWithLog(const ChildProcess& child, const ChildName& name, const std::string& did) {
  const std::string text = absl::StrCat(name.text, " ", did);
  if (child.log().empty()) {
    return MakeError(name.reason, text, {{"next", "Read what it has printed before this."}});
  }
  return MakeError(name.reason, absl::StrCat(text, "; the end of its log: ", LastLines(child.log())),
                   {{"log", child.log()}, {"next", absl::StrCat("Look at ", child.log(), ", then start again.")}});
}

// Returns the environment for execve(): this process's own, with `added` in place of the same names.
std::vector<char*> EnvironmentWith(const std::vector<std::string>& added) {
  const auto name_of = [](std::string_view variable) { return variable.substr(0, variable.find('=')); };
  std::vector<char*> variables;
  for (char** each = environ; *each != nullptr; ++each) {
    const bool replaced = std::any_of(added.begin(), added.end(),
                                      [&](const std::string& variable) { return name_of(variable) == name_of(*each); });
    if (!replaced) variables.push_back(*each);
  }
  for (const std::string& variable : added) variables.push_back(const_cast<char*>(variable.c_str()));
  variables.push_back(nullptr);
  return variables;
}

}  // namespace

absl::StatusOr<ChildProcess> ChildProcess::Start(const std::vector<std::string>& arguments, const std::string& log,
                                                 const std::vector<std::string>& environment) {
  const int log_fd = log.empty() ? ::fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1)
                                 : ::open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (log_fd < 0) return ErrnoError(errno, "open", log.empty() ? "standard error" : log);
  std::vector<char*> argv;
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  std::vector<char*> variables = EnvironmentWith(environment);
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid < 0) {
    const int error = errno;
    ::close(log_fd);
    return ErrnoError(error, "fork", arguments[0]);
  }
  if (pid == 0) {
    // Only async-signal-safe calls may follow. The child ends with this process, and does not get its Ctrl-C.
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(127);
    setpgid(0, 0);
    const int null_fd = ::open("/dev/null", O_RDONLY);
    if (null_fd >= 0) dup2(null_fd, STDIN_FILENO);
    dup2(log_fd, STDOUT_FILENO);
    dup2(log_fd, STDERR_FILENO);
    signal(SIGINT, SIG_DFL);
    signal(SIGTERM, SIG_DFL);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, nullptr);
    execve(argv[0], argv.data(), variables.data());
    _exit(127);
  }
  ::close(log_fd);
  return ChildProcess(pid, log);
}

ChildProcess::ChildProcess(ChildProcess&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)), log_(std::move(other.log_)), end_(std::move(other.end_)) {}

ChildProcess::~ChildProcess() {
  if (pid_ < 0 || Ended()) return;
  Signal(SIGKILL);
  Wait(absl::Seconds(10));
}

std::optional<std::string> ChildProcess::Ended() {
  int status = 0;
  if (!end_ && waitpid(pid_, &status, WNOHANG) == pid_) {
    end_ = WIFSIGNALED(status) ? absl::StrCat("signal ", WTERMSIG(status))
                               : absl::StrCat("exit status ", WEXITSTATUS(status));
  }
  return end_;
}

void ChildProcess::Signal(int signal) {
  if (!Ended()) ::kill(pid_, signal);
}

bool ChildProcess::Wait(absl::Duration timeout) {
  const absl::Time deadline = Clock::Real().SteadyNow() + timeout;
  while (!Ended()) {
    if (Clock::Real().SteadyNow() >= deadline) return false;
    absl::SleepFor(absl::Milliseconds(10));
  }
  return true;
}

void ReapOrphans(absl::FunctionRef<bool(pid_t)> is_own) {
  while (true) {
    siginfo_t ended = {};
    if (waitid(P_ALL, 0, &ended, WEXITED | WNOHANG | WNOWAIT) != 0 || ended.si_pid == 0 || is_own(ended.si_pid)) return;
    waitpid(ended.si_pid, nullptr, WNOHANG);
  }
}

absl::Status ErrorOf(const ChildProcess& child, const ChildName& name, const std::string& end) {
  if (const auto said = ErrorInLog(child.log())) {
    return MakeError(said->first,
                     absl::StrCat(name.text, " ended with ", end, ": ", said->second, "; its log is ", child.log()),
                     {{"log", child.log()}});
  }
  return ErrorWithLog(child, name, absl::StrCat("ended with ", end));
}

absl::StatusOr<std::string> AwaitAddress(ChildProcess& child, const std::string& path, const ChildName& name,
                                         absl::Duration timeout) {
  const absl::Time deadline = Clock::Real().SteadyNow() + timeout;
  for (;;) {
    std::ifstream file(path);
    std::string address;
    // The service renames the file into place, so it appears complete.
    if (std::getline(file, address) && !address.empty()) return address;
    const auto end = child.Ended();
    if (InterruptFlag()) return MakeError(Reason::kInterrupted, "interrupted");
    if (!end && Clock::Real().SteadyNow() < deadline) {
      absl::SleepFor(absl::Milliseconds(10));
      continue;
    }
    if (end) return ErrorOf(child, name, *end);
    return ErrorWithLog(child, name, absl::StrCat("was not ready within ", DurationText(timeout)));
  }
}

}  // namespace cairn::cli

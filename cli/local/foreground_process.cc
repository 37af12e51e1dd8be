#include "cli/local/foreground_process.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/file/errno_error.h"
#include "common/file/unique_fd.h"
#include "common/status/status.h"

namespace cairn::cli {
namespace {

sigset_t TakenSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGCHLD}) sigaddset(&signals, signal);
  return signals;
}

// Returns this process's environment ("NAME=value"), where `variables` replace those of the same names.
std::vector<std::string> EnvironmentWith(const std::vector<std::pair<std::string, std::string>>& variables) {
  std::vector<std::string> environment;
  for (const auto& [name, value] : variables) environment.push_back(absl::StrCat(name, "=", value));
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    bool replaced = false;
    for (const auto& [name, value] : variables) replaced = replaced || text.starts_with(name + "=");
    if (!replaced) environment.push_back(text);
  }
  return environment;
}

std::vector<char*> Pointers(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

// Returns 0 if the file can be executed, else the errno of execve.
int ExecError(const std::string& path) {
  std::error_code error;
  if (access(path.c_str(), X_OK) != 0) return errno;
  return std::filesystem::is_directory(path, error) ? EACCES : 0;
}

}  // namespace

absl::Status FindProgram(const std::string& name) {
  if (name.find('/') != std::string::npos) {
    const int error = ExecError(name);
    return error == 0 ? absl::OkStatus() : ErrnoError(error, "start", name);
  }
  if (name.empty()) return ErrnoError(ENOENT, "start", name);
  const char* path = std::getenv("PATH");
  int denied = ENOENT;
  for (const absl::string_view directory : absl::StrSplit(path == nullptr ? "/bin:/usr/bin" : path, ':')) {
    const int error = ExecError(absl::StrCat(directory.empty() ? "." : directory, "/", name));
    if (error == 0) return absl::OkStatus();
    if (error == EACCES) denied = EACCES;
  }
  return ErrnoError(denied, "start", name);
}

absl::StatusOr<ForegroundProcess> ForegroundProcess::Start(
    const std::vector<std::string>& command, const std::vector<std::pair<std::string, std::string>>& variables) {
  std::vector<std::string> arguments = command;
  std::vector<std::string> environment = EnvironmentWith(variables);
  const std::vector<char*> argv = Pointers(arguments);
  const std::vector<char*> envp = Pointers(environment);
  int failed[2];  // the child writes its errno if execvpe fails; a successful execvpe closes it
  if (pipe2(failed, O_CLOEXEC) != 0) return ErrnoError(errno, "pipe", command[0]);
  const UniqueFd reads(failed[0]);
  UniqueFd writes(failed[1]);
  // Blocks the signals before the child starts, so that none is lost before the first Follow.
  const sigset_t taken = TakenSignals();
  sigset_t before;
  sigprocmask(SIG_BLOCK, &taken, &before);
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent) _exit(127);
    for (const int signal : {SIGINT, SIGTERM, SIGHUP}) std::signal(signal, SIG_DFL);
    sigprocmask(SIG_SETMASK, &before, nullptr);
    execvpe(argv[0], argv.data(), envp.data());
    const int error = errno;
    (void)!write(failed[1], &error, sizeof(error));
    _exit(127);
  }
  int error = pid < 0 ? errno : 0;
  writes = UniqueFd();
  if (pid > 0 && read(reads.get(), &error, sizeof(error)) > 0) waitpid(pid, nullptr, 0);
  if (error != 0) {
    sigprocmask(SIG_SETMASK, &before, nullptr);
    return ErrnoError(error, "start", command[0]);
  }
  return ForegroundProcess(pid, before);
}

ForegroundProcess::ForegroundProcess(ForegroundProcess&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)), before_(other.before_) {}

ForegroundProcess::~ForegroundProcess() {
  if (pid_ > 0) sigprocmask(SIG_SETMASK, &before_, nullptr);
}

std::optional<int> ForegroundProcess::Follow(absl::Duration timeout) {
  const sigset_t taken = TakenSignals();
  const timespec wait = absl::ToTimespec(timeout);
  siginfo_t info = {};
  const int signal = sigtimedwait(&taken, &info, &wait);
  int status = 0;
  if (waitpid(pid_, &status, WNOHANG) == pid_) {
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  }
  if (signal > 0 && signal != SIGCHLD && info.si_code != SI_KERNEL) kill(pid_, signal);
  return std::nullopt;
}

bool ForegroundProcess::Interrupted() {
  sigset_t ends;
  sigemptyset(&ends);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) sigaddset(&ends, signal);
  const timespec now = {};
  return sigtimedwait(&ends, nullptr, &now) > 0;
}

}  // namespace cairn::cli

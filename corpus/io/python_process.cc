#include "corpus/io/python_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <system_error>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "corpus/io/errno_status.h"
#include "corpus/io/python_interpreter.h"

namespace cairn::corpus {
namespace {

constexpr int kPollMilliseconds = 100;
constexpr int kPipeBytes = 1 << 20;
constexpr int kFile = 3;  // the programs know it
constexpr int kAbove = 10;
constexpr size_t kHeaderBytes = 5;
constexpr size_t kMostMessageBytes = 64 << 10;
constexpr size_t kTailBytes = 250;  // at most half of a message's 512 bytes
constexpr absl::Duration kEndShortly = absl::Seconds(2);

// Moves a descriptor above those which the process gets, so that none takes the place of another.
UniqueFd Above(UniqueFd fd) { return UniqueFd(fcntl(fd.get(), F_DUPFD_CLOEXEC, kAbove)); }

}  // namespace

absl::StatusOr<std::unique_ptr<PythonProcess>> PythonProcess::Start(Options options) {
  std::unique_ptr<PythonProcess> process(new PythonProcess(std::move(options)));
  CAIRN_RETURN_IF_ERROR(process->Run());
  return process;
}

PythonProcess::~PythonProcess() {
  if (pid_ < 0) return;
  input_ = UniqueFd();
  for (const absl::Time deadline = absl::Now() + options_.end_in; absl::Now() < deadline;) {
    if (waitpid(pid_, nullptr, WNOHANG) == pid_) return;
    absl::SleepFor(absl::Milliseconds(20));
  }
  kill(-pid_, SIGKILL);  // its group, to which what it has started belongs
  while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

absl::Status PythonProcess::Error(Reason reason, const std::string& message, const std::string& next) const {
  ErrorMetadata metadata;
  if (!options_.path.empty()) metadata.emplace_back("file", options_.path);
  if (!next.empty()) metadata.emplace_back("next", next);
  return MakeError(reason, message, metadata);
}

absl::Status PythonProcess::Failed(std::string_view what, int error) const {
  return Error(options_.failure,
               absl::StrCat(Subject(), std::string(what), ": ", std::generic_category().message(error)));
}

absl::Status PythonProcess::Run() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return Failed("no pipe for a process of Python", errno);
  output_ = UniqueFd(ends[0]);
  const UniqueFd its_output = Above(UniqueFd(ends[1]));
  fcntl(output_.get(), F_SETPIPE_SZ, kPipeBytes);  // only the speed suffers if it is refused
  UniqueFd its_input;
  if (options_.takes_frames) {
    // A socket takes MSG_NOSIGNAL, and so no SIGPIPE comes when the process has ended.
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) return Failed("no socket for Python", errno);
    input_ = UniqueFd(ends[0]);
    its_input = Above(UniqueFd(ends[1]));
  }
  UniqueFd its_file;
  if (options_.file >= 0) its_file = UniqueFd(fcntl(options_.file, F_DUPFD_CLOEXEC, kAbove));
  log_ = Above(UniqueFd(memfd_create("cairn-python", MFD_CLOEXEC)));
  if (!log_.valid() || !its_output.valid() || (options_.takes_frames && !its_input.valid()) ||
      (options_.file >= 0 && !its_file.valid())) {
    return Failed("no memory for a process of Python", errno);
  }

  const std::string interpreter = PythonInterpreter();
  std::vector<std::string> arguments = {interpreter, "-c", options_.program};
  arguments.insert(arguments.end(), options_.arguments.begin(), options_.arguments.end());
  std::vector<char*> argv;
  argv.reserve(arguments.size() + 1);
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  if (its_input.valid()) {
    posix_spawn_file_actions_adddup2(&actions, its_input.get(), STDIN_FILENO);
  } else {
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  }
  posix_spawn_file_actions_adddup2(&actions, its_output.get(), STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, log_.get(), STDERR_FILENO);
  if (its_file.valid()) posix_spawn_file_actions_adddup2(&actions, its_file.get(), kFile);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none;
  sigemptyset(&none);
  posix_spawnattr_setsigmask(&attributes, &none);
  // Ctrl-C is for this process, which then ends the other one.
  posix_spawnattr_setpgroup(&attributes, 0);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETPGROUP);
  const int error = posix_spawnp(&pid_, interpreter.c_str(), &actions, &attributes, argv.data(), environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  if (error == 0) return absl::OkStatus();
  pid_ = -1;
  return Error(Reason::kUnsupported,
               absl::StrCat(Subject(), interpreter, ", which ", options_.task,
                            ", cannot be started: ", std::generic_category().message(error)),
               absl::StrCat("Install Python 3 and ", options_.package,
                            ", or name the interpreter by the environment variable CAIRN_PYTHON."));
}

absl::StatusOr<size_t> PythonProcess::Receive(char* buffer, size_t size, absl::Time deadline) {
  while (true) {
    if (options_.stop != nullptr && options_.stop->load(std::memory_order_relaxed)) {
      return MakeError(Reason::kInterrupted, "interrupted");
    }
    if (absl::Now() > deadline) return Error(Reason::kTimedOut, absl::StrCat(options_.name, " has not answered"));
    pollfd waiting{output_.get(), POLLIN, 0};
    const int ready = poll(&waiting, 1, kPollMilliseconds);
    if (ready == 0 || (ready < 0 && errno == EINTR)) continue;
    const ssize_t count = read(output_.get(), buffer, size);
    if (count > 0) return static_cast<size_t>(count);
    if (count < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (count < 0) return InputError("read", options_.path, errno);
    return Ended();
  }
}

absl::Status PythonProcess::ReceiveAll(char* buffer, size_t size, absl::Time deadline) {
  while (size > 0) {
    CAIRN_ASSIGN_OR_RETURN(const size_t count, Receive(buffer, size, deadline));
    buffer += count;
    size -= count;
  }
  return absl::OkStatus();
}

absl::StatusOr<PythonProcess::Frame> PythonProcess::ReceiveFrame(absl::Time deadline) {
  std::array<char, kHeaderBytes> header;
  CAIRN_RETURN_IF_ERROR(ReceiveAll(header.data(), header.size(), deadline));
  Frame frame{.kind = header[0]};
  std::memcpy(&frame.length, header.data() + 1, sizeof(frame.length));
  static_assert(std::endian::native == std::endian::little);
  return frame;
}

absl::StatusOr<std::string> PythonProcess::ReceiveContent(const Frame& frame, size_t most) {
  if (frame.length > most) return NoFrame();
  std::string content(frame.length, '\0');
  CAIRN_RETURN_IF_ERROR(ReceiveAll(content.data(), content.size()));
  return content;
}

absl::Status PythonProcess::ReceiveFailure(const Frame& frame) {
  CAIRN_ASSIGN_OR_RETURN(const std::string content, ReceiveContent(frame, kMostMessageBytes));
  const auto json = nlohmann::json::parse(content, nullptr, /*allow_exceptions=*/false);
  const auto text = [&](const char* key) {
    const auto found = json.find(key);
    return json.is_object() && found != json.end() && found->is_string() ? found->get<std::string>() : "";
  };
  const std::optional<Reason> reason = ReasonFromName(text("reason"));
  return Error(reason.value_or(options_.failure), absl::StrCat(Subject(), text("message")), text("next"));
}

absl::Status PythonProcess::NoFrame() const {
  return Error(options_.failure, absl::StrCat(options_.name, " has sent what is no frame"));
}

absl::Status PythonProcess::Send(std::string_view bytes) {
  while (!bytes.empty()) {
    if (options_.stop != nullptr && options_.stop->load(std::memory_order_relaxed)) {
      return MakeError(Reason::kInterrupted, "interrupted");
    }
    pollfd waiting{input_.get(), POLLOUT, 0};
    const int ready = poll(&waiting, 1, kPollMilliseconds);
    if (ready == 0 || (ready < 0 && errno == EINTR)) continue;
    const ssize_t count = send(input_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (count >= 0) {
      bytes.remove_prefix(static_cast<size_t>(count));
    } else if (errno == EPIPE || errno == ECONNRESET) {
      // It may have told why it ends.
      CAIRN_ASSIGN_OR_RETURN(const Frame frame, ReceiveFrame());
      return frame.kind == 'E' ? ReceiveFailure(frame) : NoFrame();
    } else if (errno != EINTR && errno != EAGAIN) {
      return Failed("cannot send to Python", errno);
    }
  }
  return absl::OkStatus();
}

absl::Status PythonProcess::SendHeader(char kind, uint32_t length) {
  std::array<char, kHeaderBytes> header;
  header[0] = kind;
  std::memcpy(header.data() + 1, &length, sizeof(length));
  return Send({header.data(), header.size()});
}

absl::Status PythonProcess::SendFrame(char kind, std::string_view content) {
  CAIRN_RETURN_IF_ERROR(SendHeader(kind, static_cast<uint32_t>(content.size())));
  return Send(content);
}

absl::Status PythonProcess::Ended() {
  const std::string message =
      absl::StrCat(options_.name, " (", PythonInterpreter(), ") did not end well: ", HowItEnded());
  return Error(options_.failure, message, options_.advice);
}

// Says how it has ended, after its output has ended.
std::string PythonProcess::HowItEnded() {
  const std::string name = absl::StrCat("process ", pid_);
  int status = 0;
  pid_t ended = 0;
  for (const absl::Time deadline = absl::Now() + kEndShortly; ended == 0 && absl::Now() < deadline;) {
    ended = waitpid(pid_, &status, WNOHANG);
    if (ended == 0) absl::SleepFor(absl::Milliseconds(5));
  }
  if (ended != pid_) return absl::StrCat(name, " has closed its output");
  pid_ = -1;
  std::string said = Said();
  if (!said.empty()) said = absl::StrCat(": ", said);
  if (WIFSIGNALED(status)) {
    const int signal = WTERMSIG(status);
    return absl::StrCat(name, " was ended by signal ", signal, " (", strsignal(signal), ")", said);
  }
  return absl::StrCat(name, " has ended with status ", WEXITSTATUS(status), said);
}

// Returns the end of what it has written to standard error.
std::string PythonProcess::Said() const {
  struct stat found;
  if (fstat(log_.get(), &found) != 0) return "";
  const auto begin = std::max<off_t>(0, found.st_size - static_cast<off_t>(kTailBytes));
  std::string text(kTailBytes, '\0');
  const ssize_t count = pread(log_.get(), text.data(), text.size(), begin);
  text.resize(count < 0 ? 0 : static_cast<size_t>(count));
  absl::StripAsciiWhitespace(&text);
  return text;
}

}  // namespace cairn::corpus

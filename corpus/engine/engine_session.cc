#include "corpus/engine/engine_session.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/base/version_text.h"
#include "common/file/full_transfer.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "corpus/io/python_interpreter.h"

namespace cairn::corpus {
namespace {

constexpr char kDriver[] =
#include "corpus/engine/engine_driver_text.inc"
    ;

constexpr int kPollMilliseconds = 100;
constexpr int kAbove = 10;
constexpr size_t kMostAnswerBytes = size_t{64} << 20;
constexpr size_t kMostFailuresNamed = 3;
constexpr size_t kMostOfAMessage = 200;
constexpr off_t kTailBytes = 250;
constexpr absl::Duration kEndShortly = absl::Seconds(20);
constexpr absl::Duration kConnect = absl::Minutes(5);

UniqueFd Above(UniqueFd fd) { return UniqueFd(fcntl(fd.get(), F_DUPFD_CLOEXEC, kAbove)); }

std::string TextOf(const nlohmann::json& json, const char* key) {
  const auto found = json.find(key);
  return found != json.end() && found->is_string() ? found->get<std::string>() : "";
}

// The error of tasks that failed.
absl::Status ErrorOf(const std::vector<nlohmann::json>& failures, const std::vector<EngineTask>& tasks) {
  std::vector<std::string> told;
  for (const nlohmann::json& failure : failures) {
    if (told.size() == kMostFailuresNamed) break;
    const auto number = failure["failed"].get<size_t>();
    const std::string node = TextOf(failure, "node");
    told.push_back(absl::StrCat(tasks[number].name, node.empty() ? "" : absl::StrCat(" on ", node), ": ",
                                TextOf(failure, "message").substr(0, kMostOfAMessage)));
  }
  const std::string more = failures.size() > told.size() ? absl::StrCat("; ", failures.size(), " failed in all") : "";
  const nlohmann::json& first = failures.front();
  ErrorMetadata metadata;
  if (const std::string next = TextOf(first, "next"); !next.empty()) metadata.emplace_back("next", next);
  return MakeError(ReasonFromName(TextOf(first, "reason")).value_or(Reason::kTransportFailed),
                   absl::StrCat(absl::StrJoin(told, "; "), more), metadata);
}

}  // namespace

absl::StatusOr<std::unique_ptr<EngineSession>> EngineSession::Start(const EngineChoice& choice,
                                                                    const std::atomic<bool>& stop) {
  std::unique_ptr<EngineSession> session(new EngineSession(choice, stop));
  CAIRN_RETURN_IF_ERROR(session->Spawn());
  std::error_code error;
  const std::string program = std::filesystem::read_symlink("/proc/self/exe", error).string();
  const std::string directory = std::filesystem::current_path(error).string();
  CAIRN_RETURN_IF_ERROR(session->Send({{"engine", choice.engine},
                                       {"address", choice.address},
                                       {"program", program},
                                       {"version", VersionText("cairn")},
                                       {"cpus", choice.cpus},
                                       {"directory", directory}}));
  CAIRN_ASSIGN_OR_RETURN(const nlohmann::json ready, session->Receive(absl::Now() + kConnect));
  session->slots_ = std::max(1, ready.value("ready", 1));
  return session;
}

EngineSession::~EngineSession() {
  if (pid_ < 0) return;
  to_driver_ = UniqueFd();  // the driver ends its tasks, then itself
  for (const absl::Time deadline = absl::Now() + kEndShortly; absl::Now() < deadline;) {
    if (waitpid(pid_, nullptr, WNOHANG) == pid_) return;
    absl::SleepFor(absl::Milliseconds(20));
  }
  kill(-pid_, SIGKILL);
  while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

absl::Status EngineSession::Spawn() {
  const auto failed = [&](std::string_view what, int error) {
    return MakeError(Reason::kUnsupported,
                     absl::StrCat(std::string(what), ": ", std::generic_category().message(error)),
                     {{"next",
                       "Install Python 3 with ray or pyspark, or name the interpreter by the environment "
                       "variable CAIRN_PYTHON."}});
  };
  int in[2], out[2];
  if (pipe2(in, O_CLOEXEC) != 0) return failed("no pipe for the engine", errno);
  const UniqueFd their_in = Above(UniqueFd(in[0]));
  to_driver_ = UniqueFd(in[1]);
  if (pipe2(out, O_CLOEXEC) != 0) return failed("no pipe for the engine", errno);
  from_driver_ = UniqueFd(out[0]);
  const UniqueFd their_out = Above(UniqueFd(out[1]));
  log_ = Above(UniqueFd(memfd_create("cairn-engine", MFD_CLOEXEC)));
  if (!their_in.valid() || !their_out.valid() || !log_.valid()) return failed("no memory for the engine", errno);
  std::vector<std::string> arguments = {PythonInterpreter(), "-c", kDriver};
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, their_in.get(), STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, their_out.get(), STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, log_.get(), STDERR_FILENO);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none;
  sigemptyset(&none);
  posix_spawnattr_setsigmask(&attributes, &none);
  // Ctrl-C is for this process, which then ends the driver.
  posix_spawnattr_setpgroup(&attributes, 0);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETPGROUP);
  const int error = posix_spawnp(&pid_, argv[0], &actions, &attributes, argv.data(), environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  if (error == 0) return absl::OkStatus();
  pid_ = -1;
  return failed(absl::StrCat(arguments[0], ", which runs ", engine_, ", cannot be started"), error);
}

absl::Status EngineSession::Send(const nlohmann::json& line) {
  // A file's name may have any bytes.
  const std::string text = absl::StrCat(line.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace), "\n");
  // The driver always reads, so this does not wait for long. If it has ended, the write fails without a signal.
  sigset_t pipe, before;
  sigemptyset(&pipe);
  sigaddset(&pipe, SIGPIPE);
  pthread_sigmask(SIG_BLOCK, &pipe, &before);
  const int error = WriteFully(to_driver_.get(), text);
  const timespec at_once = {};
  if (error == EPIPE) sigtimedwait(&pipe, nullptr, &at_once);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return error == 0 ? absl::OkStatus() : Ended();
}

absl::Status EngineSession::Ended() const {
  std::string said;
  struct stat found;
  if (fstat(log_.get(), &found) == 0 && found.st_size > 0) {
    said.resize(kTailBytes);
    const ssize_t count = pread(log_.get(), said.data(), said.size(), std::max<off_t>(0, found.st_size - kTailBytes));
    said.resize(count < 0 ? 0 : static_cast<size_t>(count));
    absl::StripAsciiWhitespace(&said);
  }
  return MakeError(Reason::kTransportFailed,
                   absl::StrCat("the process that runs ", engine_, " has ended", said.empty() ? "" : ": ", said),
                   {{"next", absl::StrCat("Look in the logs of ", engine_, ", then give the command again.")}});
}

absl::StatusOr<nlohmann::json> EngineSession::Receive(absl::Time deadline) {
  while (true) {
    const size_t end = unread_.find('\n');
    if (end != std::string::npos) {
      nlohmann::json answer = nlohmann::json::parse(unread_.substr(0, end), nullptr, /*allow_exceptions=*/false);
      unread_.erase(0, end + 1);
      if (!answer.is_object()) return Ended();
      if (!answer.contains("error")) return answer;
      const nlohmann::json& error = answer["error"];
      ErrorMetadata metadata;
      if (const std::string next = TextOf(error, "next"); !next.empty()) metadata.emplace_back("next", next);
      return MakeError(ReasonFromName(TextOf(error, "reason")).value_or(Reason::kTransportFailed),
                       TextOf(error, "message"), metadata);
    }
    if (stop_.load()) return MakeError(Reason::kInterrupted, "interrupted; all tasks are ended");
    if (unread_.size() > kMostAnswerBytes) return Ended();
    if (absl::Now() > deadline) {
      return MakeError(Reason::kUnsupported,
                       absl::StrCat(engine_, " has not answered in ", absl::FormatDuration(kConnect)),
                       {{"next", "See that the cluster runs, and give its address by --engine-address."}});
    }
    pollfd waiting{from_driver_.get(), POLLIN, 0};
    const int ready = poll(&waiting, 1, kPollMilliseconds);
    if (ready == 0 || (ready < 0 && errno == EINTR)) continue;
    char buffer[64 << 10];
    const ssize_t count = read(from_driver_.get(), buffer, sizeof(buffer));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return Ended();
    unread_.append(buffer, static_cast<size_t>(count));
  }
}

absl::StatusOr<std::vector<nlohmann::json>> EngineSession::Run(const std::vector<EngineTask>& tasks,
                                                               EngineProgress* progress) {
  nlohmann::json list = nlohmann::json::array();
  progress->tasks_done = progress->bytes_done = progress->bytes = 0;
  progress->tasks = tasks.size();
  for (const EngineTask& task : tasks) {
    nlohmann::json output = nullptr;
    if (task.output.has_value()) output = *task.output;
    list.push_back({{"name", task.name}, {"words", task.words}, {"output", output}, {"bytes", task.bytes}});
    progress->bytes += task.bytes;
  }
  CAIRN_RETURN_IF_ERROR(Send({{"tasks", std::move(list)}}));
  std::vector<nlohmann::json> reports(tasks.size());
  std::vector<nlohmann::json> failures;
  while (true) {
    CAIRN_ASSIGN_OR_RETURN(nlohmann::json answer, Receive(absl::InfiniteFuture()));
    if (answer.contains("end")) break;
    const char* const kind = answer.contains("done") ? "done" : "failed";
    const auto number = answer.value(kind, tasks.size());
    if (number >= tasks.size()) return Ended();
    if (*kind == 'f') {
      failures.push_back(std::move(answer));
      continue;
    }
    if (reports[number].is_null()) {
      ++progress->tasks_done;
      progress->bytes_done += tasks[number].bytes;
    }
    reports[number] = std::move(answer["report"]);
  }
  if (!failures.empty()) return ErrorOf(failures, tasks);
  for (size_t i = 0; i < tasks.size(); ++i) {
    if (reports[i].is_object()) continue;
    return MakeError(Reason::kTransportFailed, absl::StrCat(engine_, " has not told what became of ", tasks[i].name));
  }
  return reports;
}

}  // namespace cairn::corpus

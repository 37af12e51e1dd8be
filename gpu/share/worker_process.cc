#include "gpu/share/worker_process.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/base/duration_text.h"
#include "common/process/log.h"
#include "common/status/reason.h"
#include "common/status/status.h"

extern char** environ;

namespace cairn {
namespace {

// The descriptor under which the worker finds its socket.
constexpr int kWorkerSocket = 3;
// How long to wait for the end of a process that has closed its socket.
constexpr absl::Duration kEndShortly = absl::Seconds(1);
// If a step is not done after this part of its timeout, the worker gets a ping.
constexpr double kPingAfter = 0.4;
// The worker must answer the ping within this part of the remaining time. So a hanging one is reported before other
// ranks time out.
constexpr double kPongWithin = 2.0 / 3;

// Makes an error for which this process is at fault, and not NCCL or another rank.
absl::Status Failed(const std::string& what) {
  return MakeError(Reason::kTransportFailed, absl::StrCat("cairn-gpu-worker ", what),
                   {{std::string(kWorkerAtFault), "yes"}});
}

// Returns 0 or an errno.
int Spawn(const WorkerProcessOptions& options, int socket, pid_t* pid) {
  std::vector<std::string> arguments = {options.program, absl::StrCat("--socket=", kWorkerSocket)};
  if (!options.libcuda.empty()) arguments.push_back("--libcuda=" + options.libcuda);
  if (!options.libnccl.empty()) arguments.push_back("--libnccl=" + options.libnccl);
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, socket, kWorkerSocket);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none;
  sigemptyset(&none);
  posix_spawnattr_setsigmask(&attributes, &none);  // the agent blocks signals; the worker must not inherit that
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
  const int error = posix_spawn(pid, options.program.c_str(), &actions, &attributes, argv.data(), environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  return error;
}

}  // namespace

absl::StatusOr<std::unique_ptr<WorkerProcess>> WorkerProcess::Start(const WorkerProcessOptions& options) {
  int ends[2] = {-1, -1};
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
    return Failed(absl::StrCat("has no socket: ", std::generic_category().message(errno)));
  }
  UniqueFd own(ends[0]);
  const UniqueFd other(ends[1]);
  pid_t pid = 0;
  const int error = Spawn(options, other.get(), &pid);
  if (error != 0) {
    return Failed(absl::StrCat("cannot be started: ", options.program, ": ", std::generic_category().message(error)));
  }
  return std::unique_ptr<WorkerProcess>(new WorkerProcess(std::move(own), pid, options.grace));
}

void WorkerProcess::End() {
  socket_.Close();
  if (AwaitEnd(grace_)) return;
  {
    MutexLock lock(mutex_);
    if (!reaped_) kill(pid_, SIGKILL);  // after waitpid the number may belong to another process
  }
  AwaitEnd(absl::InfiniteDuration());
}

bool WorkerProcess::Reap() {
  MutexLock lock(mutex_);
  if (reaped_) return true;
  const pid_t ended = waitpid(pid_, &exit_status_, WNOHANG);
  // The exit status of a worker that should end is used nowhere else, so a crash at its end must be logged here.
  if (ended == pid_ && WIFSIGNALED(exit_status_) && WTERMSIG(exit_status_) != SIGKILL) {
    Log(LogLevel::kError, "gpu_worker_crashed", {{"pid", pid_}, {"signal", WTERMSIG(exit_status_)}});
  }
  return reaped_ = ended == pid_ || (ended < 0 && errno == ECHILD);
}

bool WorkerProcess::AwaitEnd(absl::Duration timeout) {
  if (Reap()) return true;
  // A pidfd becomes readable when the process ends. On an old kernel without pidfds this polls in short intervals.
  const UniqueFd process(static_cast<int>(syscall(SYS_pidfd_open, pid_, 0)));
  const absl::Time until = Clock::Real().SteadyNow() + timeout;
  while (true) {
    if (Reap()) return true;
    const absl::Duration left = until - Clock::Real().SteadyNow();
    if (left <= absl::ZeroDuration()) return false;
    const absl::Duration wait = process.valid() ? std::min(left, absl::Minutes(1)) : absl::Milliseconds(10);
    pollfd polled = {process.get(), POLLIN, 0};
    (void)poll(&polled, 1, static_cast<int>(absl::ToInt64Milliseconds(wait)) + 1);
  }
}

absl::Status WorkerProcess::Ended() {
  if (!AwaitEnd(kEndShortly)) return Failed("has closed its socket");
  MutexLock lock(mutex_);
  if (WIFSIGNALED(exit_status_)) return Failed(absl::StrCat("was ended by signal ", WTERMSIG(exit_status_)));
  // A worker ends with status 0 only if its agent has closed the socket.
  if (WEXITSTATUS(exit_status_) == 0) {
    return MakeError(Reason::kTransportFailed, "cairn-gpu-worker was ended with its group");
  }
  return Failed(absl::StrCat("has ended with status ", WEXITSTATUS(exit_status_)));
}

absl::StatusOr<worker::WorkerEvent> WorkerProcess::Await(absl::Duration timeout) {
  const absl::Time until = Clock::Real().SteadyNow() + timeout;
  while (true) {
    const absl::Duration left = until - Clock::Real().SteadyNow();
    if (left <= absl::ZeroDuration()) {
      return MakeError(Reason::kTimedOut,
                       absl::StrCat("cairn-gpu-worker has not answered within ", DurationText(timeout)));
    }
    CAIRN_ASSIGN_OR_RETURN(const bool ready, socket_.Await(left));
    if (ready) break;
  }
  worker::WorkerEvent event;
  UniqueFd descriptor;
  CAIRN_ASSIGN_OR_RETURN(const bool received, socket_.Receive(event, descriptor));
  if (!received) return Ended();
  return event;
}

absl::StatusOr<worker::WorkerEvent> WorkerProcess::Ask(const worker::WorkerRequest& request, int descriptor,
                                                       worker::WorkerEvent::EventCase expected,
                                                       absl::Duration timeout) {
  // After a failed send, the last message of the ended worker tells the cause.
  const absl::Status sent = socket_.Send(request, descriptor);
  if (absl::IsResourceExhausted(sent)) return sent;
  CAIRN_ASSIGN_OR_RETURN(worker::WorkerEvent event, Await(timeout));
  if (event.event_case() == worker::WorkerEvent::kFailed) {
    return MakeError(Reason::kTransportFailed, event.failed().error());
  }
  if (event.event_case() != expected) return Failed("has sent a wrong kind of answer");
  return event;
}

absl::StatusOr<worker::Described> WorkerProcess::Describe(absl::Duration timeout) {
  worker::WorkerRequest request;
  request.mutable_describe();
  CAIRN_ASSIGN_OR_RETURN(const worker::WorkerEvent event, Ask(request, -1, worker::WorkerEvent::kDescribed, timeout));
  return event.described();
}

absl::StatusOr<std::string> WorkerProcess::MakeUniqueId(absl::Duration timeout) {
  worker::WorkerRequest request;
  request.mutable_make_id();
  CAIRN_ASSIGN_OR_RETURN(const worker::WorkerEvent event, Ask(request, -1, worker::WorkerEvent::kMadeId, timeout));
  return event.made_id().unique_id();
}

absl::StatusOr<uint64_t> WorkerProcess::Join(const worker::Join& join, absl::Duration timeout) {
  worker::WorkerRequest request;
  *request.mutable_join() = join;
  // After a failed send, the last message of the ended worker tells the cause.
  const absl::Status sent = socket_.Send(request, -1);
  if (!sent.ok() && !socket_.closed()) return sent;
  const absl::Status joined = AwaitAsking(timeout, [this] { return joined_.has_value(); });
  if (HasReason(joined, Reason::kTimedOut)) {
    return MakeError(Reason::kTimedOut,
                     absl::StrCat("NCCL has waited for the other ranks for ", DurationText(timeout)));
  }
  CAIRN_RETURN_IF_ERROR(joined);
  return joined_->device_bytes();
}

absl::Status WorkerProcess::Map(const worker::Map& map, int descriptor, absl::Duration timeout) {
  worker::WorkerRequest request;
  *request.mutable_map() = map;
  return Ask(request, descriptor, worker::WorkerEvent::kMapped, timeout).status();
}

absl::Status WorkerProcess::Unmap(uint64_t memory, absl::Duration timeout) {
  worker::WorkerRequest request;
  request.mutable_unmap()->set_memory(memory);
  return Ask(request, -1, worker::WorkerEvent::kUnmapped, timeout).status();
}

absl::StatusOr<worker::DeviceEvent> WorkerProcess::ReadDevice(const worker::DeviceRequest& asked, int descriptor,
                                                              absl::Duration timeout) {
  worker::WorkerRequest request;
  *request.mutable_device() = asked;
  CAIRN_ASSIGN_OR_RETURN(worker::WorkerEvent event, Ask(request, descriptor, worker::WorkerEvent::kDevice, timeout));
  if (event.device().has_refused()) return MakeError(Reason::kDeviceError, event.device().refused().error());
  return std::move(*event.mutable_device());
}

absl::Status WorkerProcess::BeginStep(const worker::Step& step) {
  worker::WorkerRequest request;
  *request.mutable_step() = step;
  const absl::Status sent = socket_.Send(request, -1);
  // After a failed send, the last message of the ended worker tells the cause.
  return absl::IsResourceExhausted(sent) || !socket_.closed() ? sent : absl::OkStatus();
}

absl::Status WorkerProcess::AwaitStep(uint64_t number, absl::Duration timeout) {
  return AwaitAsking(timeout, [this, number] { return steps_done_ >= number; });
}

absl::Status WorkerProcess::AwaitAsking(absl::Duration timeout, const std::function<bool()>& done) {
  const absl::Time begin = Clock::Real().SteadyNow();
  const absl::Time until = begin + timeout;
  while (!done()) {
    const auto event = TakeEvent(begin + timeout * kPingAfter);
    if (HasReason(event.status(), Reason::kTimedOut)) break;
    CAIRN_RETURN_IF_ERROR(event.status());
  }
  if (done()) return absl::OkStatus();
  worker::WorkerRequest ping;
  ping.mutable_ping();
  (void)socket_.Send(ping, -1);  // an error is ignored: the last message of an ended worker tells the cause
  const absl::Time asked = Clock::Real().SteadyNow();
  const absl::Time answer_by = asked + (until - asked) * kPongWithin;
  for (bool answers = false; !done() || !answers;) {
    const auto pong = TakeEvent(answers ? until : answer_by);
    if (HasReason(pong.status(), Reason::kTimedOut) && !answers) return Failed("does not answer any more");
    CAIRN_RETURN_IF_ERROR(pong.status());
    answers = answers || *pong;
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> WorkerProcess::TakeEvent(absl::Time until) {
  CAIRN_ASSIGN_OR_RETURN(const worker::WorkerEvent event, Await(until - Clock::Real().SteadyNow()));
  switch (event.event_case()) {
    case worker::WorkerEvent::kStepDone:
      if (event.step_done().number() != steps_done_ + 1) return Failed("has not done the steps in their order");
      steps_done_ = event.step_done().number();
      return false;
    case worker::WorkerEvent::kJoined:
      joined_ = event.joined();
      return false;
    case worker::WorkerEvent::kPong:
      return true;
    case worker::WorkerEvent::kFailed:
      return MakeError(Reason::kTransportFailed, event.failed().error());
    default:
      return Failed("has sent a wrong kind of answer");
  }
}

}  // namespace cairn

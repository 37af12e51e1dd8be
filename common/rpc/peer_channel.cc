#include "common/rpc/peer_channel.h"

#include <fcntl.h>
#include <grpcpp/create_channel_posix.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/process/task_queue.h"
#include "common/status/reason.h"
#include "common/status/status.h"

namespace cairn {
namespace {

// Returns whether the connection is alive. (gRPC shuts down the socket of a connection that it drops.)
bool Stands(int socket) {
  pollfd polled = {socket, POLLRDHUP, 0};
  return poll(&polled, 1, 0) == 0;
}

// If a thread of gRPC released a channel's last reference, it would wait for itself. So another thread does.
std::shared_ptr<grpc::Channel> LetGoElsewhere(std::shared_ptr<grpc::Channel> channel) {
  grpc::Channel* raw = channel.get();
  return {raw, [channel = std::move(channel)](grpc::Channel*) mutable {
            auto* last = new std::shared_ptr<grpc::Channel>(std::move(channel));
            // If the system refuses a thread, the channel is never freed. That is better than a process that hangs.
            RunInBackground([last] { delete last; }).IgnoreError();
          }};
}

absl::Status Interrupted(const std::string& name) {
  return MakeError(Reason::kInterrupted, absl::StrCat("the connection to ", name, " is not wanted any more"));
}

}  // namespace

struct PeerChannel::Attempt {
  const UniqueFd cancelled{eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
  std::vector<Ready> waiting;  // guarded by PeerChannel::mutex_
};

PeerChannel::PeerChannel(PeerOptions options)
    : options_([&] {
        if (options.name.empty()) options.name = options.address;
        return std::move(options);
      }()) {}

PeerChannel::~PeerChannel() { Cancel(); }

PeerChannel::Channel PeerChannel::Standing() {
  if (channel_ != nullptr && !Stands(watch_.get())) {
    channel_ = nullptr;
    watch_ = UniqueFd();
  }
  return channel_;
}

void PeerChannel::Get(Ready ready) {
  Channel standing;
  absl::Status failed;
  {
    MutexLock lock(mutex_);
    if (cancelled_) {
      failed = Interrupted(options_.name);
    } else if (standing = Standing(); standing == nullptr) {
      const bool begins = attempt_ == nullptr;
      if (begins) attempt_ = std::make_shared<Attempt>();
      attempt_->waiting.push_back(std::move(ready));
      if (!begins) return;
      // The thread does not own the channel while it blocks, so that the channel can be destroyed.
      failed = RunInBackground([weak = weak_from_this(), attempt = attempt_, options = options_] {
        absl::StatusOr<UniqueFd> connection = Dial(options, attempt->cancelled.get());
        if (const auto self = weak.lock()) self->Ended(attempt, std::move(connection));
      });
      if (failed.ok()) return;
      ready = std::move(attempt_->waiting.front());
      attempt_ = nullptr;
    }
  }
  if (standing != nullptr) {
    ready(std::move(standing));
  } else {
    ready(std::move(failed));
  }
}

absl::StatusOr<UniqueFd> PeerChannel::Dial(const PeerOptions& options, int cancelled) {
  PeerDial dial = {.address = options.address, .role = options.role, .name = options.name};
  const absl::Time until = Clock::Real().SteadyNow() + kPatience;
  while (true) {
    dial.keys = options.tokens == nullptr ? nullptr : options.tokens->Keys(options.role);
    dial.plain = options.tokens == nullptr || options.tokens->insecure() || options.plain_without_token;
    auto connection = DialPeer(dial, until - Clock::Real().SteadyNow(), cancelled);
    const absl::Status refused = connection.status();
    if (!HasReason(refused, Reason::kBadToken) || options.tokens == nullptr) return connection;
    if (options.tokens->Reload()) continue;  // the tokens were changed
    if (options.role == ServerRole::kCoordinator) return options.tokens->Explain(refused);
    // After an agent has ended, another program may listen on its port.
    return Unreachable(options.role, options.name, absl::StrCat("is not there: ", refused.message()), "");
  }
}

void PeerChannel::Ended(const std::shared_ptr<Attempt>& attempt, absl::StatusOr<UniqueFd> connection) {
  absl::StatusOr<Channel> channel = nullptr;
  UniqueFd watch;
  if (!connection.ok()) {
    channel = connection.status();
  } else {
    watch = UniqueFd(fcntl(connection->get(), F_DUPFD_CLOEXEC, 0));
    if (watch.valid()) {
      channel = LetGoElsewhere(grpc::CreateCustomInsecureChannelFromFd(options_.name, connection->release(),
                                                                       ChannelArgumentsOf(options_.max_message_bytes)));
    } else {
      channel = Unreachable(options_.role, options_.name,
                            "cannot be reached: the caller has no file descriptor left (ulimit -n)", "");
    }
  }
  std::vector<Ready> waiting;
  {
    MutexLock lock(mutex_);
    if (attempt_ != attempt) return;  // Cancel has called the waiting functions
    waiting = std::move(attempt->waiting);
    attempt_ = nullptr;
    if (channel.ok()) {
      channel_ = *channel;
      watch_ = std::move(watch);
    }
  }
  for (const Ready& ready : waiting) ready(channel);
}

absl::StatusOr<PeerChannel::Channel> PeerChannel::Await(absl::Duration patience) {
  struct Result {
    Mutex mutex;
    CondVar came;
    std::optional<absl::StatusOr<Channel>> channel ABSL_GUARDED_BY(mutex);
  };
  const auto result = std::make_shared<Result>();
  Get([result](absl::StatusOr<Channel> channel) {
    MutexLock lock(result->mutex);
    result->channel = std::move(channel);
    result->came.NotifyAll();
  });
  const absl::Time until = Clock::Real().SteadyNow() + patience;
  MutexLock lock(result->mutex);
  while (!result->channel.has_value()) {
    const absl::Duration left = until - Clock::Real().SteadyNow();
    if (left <= absl::ZeroDuration()) {
      return Unreachable(options_.role, options_.name, "did not answer in time: it is stopped, frozen or very busy",
                         "no connection in time");
    }
    result->came.WaitFor(result->mutex, left);
  }
  return *result->channel;
}

PeerChannel::Channel PeerChannel::GetIfReady() {
  Channel channel;
  {
    MutexLock lock(mutex_);
    if (cancelled_) return nullptr;
    channel = Standing();
    if (channel != nullptr || attempt_ != nullptr) return channel;
  }
  Get([](const absl::StatusOr<Channel>&) {});
  return nullptr;
}

void PeerChannel::Renew() {
  Channel last;  // not destroyed under the lock
  MutexLock lock(mutex_);
  last = std::move(channel_);
  watch_ = UniqueFd();
}

void PeerChannel::Cancel() {
  Channel last;
  std::vector<Ready> waiting;
  {
    MutexLock lock(mutex_);
    cancelled_ = true;
    last = std::move(channel_);
    watch_ = UniqueFd();
    if (attempt_ != nullptr) {
      const uint64_t one = 1;
      (void)!write(attempt_->cancelled.get(), &one, sizeof(one));
      waiting = std::move(attempt_->waiting);
      attempt_ = nullptr;
    }
  }
  for (const Ready& ready : waiting) ready(Interrupted(options_.name));
}

}  // namespace cairn

#include "agent/trainer_service/local_server.h"

#include <grpcpp/ext/health_check_service_server_builder_option.h>
#include <grpcpp/server_posix.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <deque>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "agent/sockets/socket_directory.h"
#include "common/base/clock.h"
#include "common/process/log.h"
#include "common/resources/thread.h"
#include "common/rpc/endpoint.h"
#include "common/rpc/grpc_status.h"
#include "common/status/reason.h"
#include "common/status/status.h"

namespace cairn {
namespace {

constexpr int kRefusedMessageBytes = 4096;
// The connection of a refused user is closed after this time, and answered for as long again at most.
constexpr absl::Duration kRefusedAge = absl::Seconds(1);
// No more refused connections are answered at once; others are closed without a word.
constexpr size_t kMostRefused = 64;

}  // namespace

// Answers every call of every service with PEER_UID.
class LocalServer::Refusal final : public grpc::CallbackGenericService {
 public:
  grpc::ServerGenericBidiReactor* CreateReactor(grpc::GenericCallbackServerContext*) override {
    class Reactor final : public grpc::ServerGenericBidiReactor {
     public:
      Reactor() {
        Finish(ToGrpcStatus(MakeError(Reason::kPeerUid, "this agent serves another user (others by --allow-uid)")));
      }
      void OnDone() override { delete this; }
    };
    return new Reactor();
  }
};

absl::StatusOr<std::unique_ptr<LocalServer>> LocalServer::Listen(const std::string& path, UserPolicy policy,
                                                                 grpc::Service* service) {
  CAIRN_ASSIGN_OR_RETURN(UniqueFd listener, ListenOnUnixSocket(path, !policy.only_self()));
  UniqueFd wake(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  std::unique_ptr<LocalServer> server(new LocalServer(path, std::move(policy), std::move(listener), std::move(wake)));
  grpc::ServerBuilder builder;
  ConfigureServer(builder, kMaxLocalMessageBytes);
  builder.RegisterService(service);
  server->server_ = builder.BuildAndStart();
  server->refusal_ = std::make_unique<Refusal>();
  grpc::ServerBuilder refusing;
  ConfigureServer(refusing, kRefusedMessageBytes);
  // Not even the health service, which would answer otherwise.
  refusing.SetOption(std::make_unique<grpc::HealthCheckServiceServerBuilderOption>(nullptr));
  refusing.RegisterCallbackGenericService(server->refusal_.get());
  for (const char* age : {GRPC_ARG_MAX_CONNECTION_AGE_MS, GRPC_ARG_MAX_CONNECTION_AGE_GRACE_MS}) {
    refusing.AddChannelArgument(age, static_cast<int>(absl::ToInt64Milliseconds(kRefusedAge)));
  }
  server->refusing_server_ = refusing.BuildAndStart();
  if (server->server_ == nullptr || server->refusing_server_ == nullptr) {
    return MakeError(Reason::kInternal, "the local gRPC server does not start");
  }
  return server;
}

absl::Status LocalServer::Serve() {
  CAIRN_ASSIGN_OR_RETURN(thread_, StartThread("to serve trainers", [this] { Accept(); }));
  return absl::OkStatus();
}

LocalServer::LocalServer(std::string path, UserPolicy policy, UniqueFd listener, UniqueFd wake)
    : path_(std::move(path)), policy_(std::move(policy)), listener_(std::move(listener)), wake_(std::move(wake)) {}

LocalServer::~LocalServer() { Shutdown(absl::ZeroDuration()); }

void LocalServer::Shutdown(absl::Duration grace) {
  {
    MutexLock lock(mutex_);
    if (std::exchange(shut_down_, true)) return;
  }
  const uint64_t one = 1;
  (void)!write(wake_.get(), &one, sizeof(one));
  if (thread_.joinable()) thread_.join();
  const auto deadline = std::chrono::system_clock::now() + absl::ToChronoMicroseconds(grace);
  if (server_ != nullptr) server_->Shutdown(deadline);
  if (refusing_server_ != nullptr) refusing_server_->Shutdown(deadline);
  unlink(path_.c_str());
}

void LocalServer::Accept() {
  std::deque<absl::Time> refused;  // when those were refused that may be open still
  loop_.Run({listener_.get()}, wake_.get(), [this, &refused](int, UniqueFd fd) {
    const auto peer = PeerOf(fd.get());
    const absl::Status allowed = peer.ok() ? policy_.Check(*peer) : peer.status();
    if (!allowed.ok()) {
      const absl::Time now = Clock::Real().SteadyNow();
      // gRPC varies the age by a tenth.
      while (!refused.empty() && now - refused.front() > 2.5 * kRefusedAge) refused.pop_front();
      if (refused.size() == kMostRefused) return;
      refused.push_back(now);
      Log(LogLevel::kWarn, "peer_refused", {{"error", allowed}});
      grpc::AddInsecureChannelFromFd(refusing_server_.get(), fd.release());
      return;
    }
    Caller caller = {*peer, EndOf(fd.get(), *peer)};
    {
      MutexLock lock(mutex_);
      callers_[fd.get()] = std::move(caller);  // the number is taken anew only when the connection before is closed
    }
    grpc::AddInsecureChannelFromFd(server_.get(), fd.release());
  });
}

std::optional<Caller> LocalServer::CallerOf(const std::string& peer) {
  absl::string_view number = peer;
  int fd = -1;
  if (!absl::ConsumePrefix(&number, "fd:") || !absl::SimpleAtoi(number, &fd)) return std::nullopt;
  MutexLock lock(mutex_);
  const auto found = callers_.find(fd);
  if (found == callers_.end()) return std::nullopt;
  return found->second;
}

}  // namespace cairn

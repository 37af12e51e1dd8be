#include "agent/trainer_service/local_server.h"

#include <grpcpp/server_posix.h>
#include <unistd.h>

#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "agent/sockets/socket_directory.h"
#include "common/base/clock.h"
#include "common/process/log.h"
#include "common/resources/thread.h"
#include "common/rpc/endpoint.h"
#include "common/status/reason.h"
#include "common/status/status.h"

namespace cairn {
namespace {

constexpr absl::Duration kLogInterval = absl::Seconds(1);

}  // namespace

absl::StatusOr<std::unique_ptr<LocalServer>> LocalServer::Listen(const std::string& path, UserPolicy policy,
                                                                 const std::vector<grpc::Service*>& services) {
  CAIRN_ASSIGN_OR_RETURN(UniqueFd listener, ListenOnUnixSocket(path, !policy.only_self()));
  std::unique_ptr<LocalServer> server(new LocalServer(path, std::move(policy), std::move(listener)));
  GateOptions gate;
  gate.knows = [raw = server.get()](int connection) { return raw->Knows(connection); };
  gate.passed = [raw = server.get()](int, UniqueFd connection) { raw->Pass(std::move(connection)); };
  gate.answers = {MakeError(Reason::kPeerUid, "this agent serves another user (others by --allow-uid)"), nullptr};
  CAIRN_ASSIGN_OR_RETURN(server->gate_, Gate::Make(std::move(gate), Clock::Real()));
  grpc::ServerBuilder builder;
  ConfigureServer(builder, kMaxLocalMessageBytes);
  for (grpc::Service* service : services) builder.RegisterService(service);
  server->server_ = builder.BuildAndStart();
  if (server->server_ == nullptr) return MakeError(Reason::kInternal, "the local gRPC server does not start");
  return server;
}

absl::Status LocalServer::Serve() {
  CAIRN_ASSIGN_OR_RETURN(thread_, StartThread("to serve trainers", [this] { gate_->Run({listener_.get()}); }));
  return absl::OkStatus();
}

LocalServer::LocalServer(std::string path, UserPolicy policy, UniqueFd listener)
    : path_(std::move(path)), policy_(std::move(policy)), listener_(std::move(listener)) {}

LocalServer::~LocalServer() { Shutdown(absl::ZeroDuration()); }

void LocalServer::Shutdown(absl::Duration grace) {
  {
    MutexLock lock(mutex_);
    if (std::exchange(shut_down_, true)) return;
  }
  if (gate_ != nullptr) gate_->Stop();
  if (thread_.joinable()) thread_.join();
  if (server_ != nullptr) server_->Shutdown(std::chrono::system_clock::now() + absl::ToChronoMicroseconds(grace));
  unlink(path_.c_str());
}

bool LocalServer::Knows(int connection) {
  const auto peer = PeerOf(connection);
  const absl::Status allowed = peer.ok() ? policy_.Check(*peer) : peer.status();
  const absl::Time now = Clock::Real().SteadyNow();
  if (!allowed.ok() && now - refusal_logged_ >= kLogInterval) {
    refusal_logged_ = now;
    Log(LogLevel::kWarn, "peer_refused", {{"error", allowed}});
  }
  return allowed.ok();
}

void LocalServer::Pass(UniqueFd connection) {
  const auto peer = PeerOf(connection.get());
  if (!peer.ok()) return;
  Caller caller = {*peer, EndOf(connection.get(), *peer)};
  {
    MutexLock lock(mutex_);
    // The descriptor number is used again only after the earlier connection is closed.
    callers_[connection.get()] = std::move(caller);
  }
  grpc::AddInsecureChannelFromFd(server_.get(), connection.release());
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

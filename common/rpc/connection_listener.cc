#include "common/rpc/connection_listener.h"

#include <utility>

#include "common/base/clock.h"
#include "common/resources/thread.h"
#include "common/status/reason.h"
#include "common/status/status.h"

namespace cairn {

absl::StatusOr<std::unique_ptr<ConnectionListener>> ConnectionListener::Listen(const std::string& address,
                                                                               KeysNow keys) {
  CAIRN_ASSIGN_OR_RETURN(ListeningSockets listening, ListenAt("--listen", address));
  std::unique_ptr<ConnectionListener> listener(new ConnectionListener(std::move(listening)));
  GateOptions gate;
  gate.insecure = keys == nullptr;
  gate.keys = std::move(keys);
  gate.answers = {MakeError(Reason::kBadToken, "a token is needed, and this caller has proven none"),
                  &listener->health_};
  gate.passed = [raw = listener.get()](int from, UniqueFd connection) { raw->Pass(from, std::move(connection)); };
  CAIRN_ASSIGN_OR_RETURN(listener->gate_, Gate::Make(std::move(gate), Clock::Real()));
  return listener;
}

ConnectionListener::ConnectionListener(ListeningSockets listening)
    : port_(listening.port), address_(std::move(listening.address)), listeners_(std::move(listening.sockets)) {}

void ConnectionListener::AddTo(grpc::ServerBuilder& builder) {
  using External = grpc::ServerBuilder::experimental_type::ExternalConnectionType;
  acceptor_ =
      builder.experimental().AddExternalConnectionAcceptor(External::FROM_FD, grpc::InsecureServerCredentials());
}

absl::Status ConnectionListener::Serve(grpc::Server& server) {
  server_health_ = server.GetHealthCheckService();
  std::vector<int> listeners;
  for (const UniqueFd& listener : listeners_) listeners.push_back(listener.get());
  CAIRN_ASSIGN_OR_RETURN(
      thread_, StartThread("to take connections", [this, listeners = std::move(listeners)] { gate_->Run(listeners); }));
  return absl::OkStatus();
}

void ConnectionListener::Pass(int listener, UniqueFd connection) {
  grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters passed;
  passed.listener_fd = listener;
  passed.fd = connection.release();
  acceptor_->HandleNewConnection(&passed);
}

void ConnectionListener::SetServing(const std::string& service, bool serving) {
  if (server_health_ != nullptr) server_health_->SetServingStatus(service, serving);
  health_.Set(service, serving);
  gate_->Nudge();
}

void ConnectionListener::SetAllServing(bool serving) {
  if (server_health_ != nullptr) server_health_->SetServingStatus(serving);
  health_.SetAll(serving);
  gate_->Nudge();
}

void ConnectionListener::Stop() {
  if (gate_ != nullptr) gate_->Stop();
  if (thread_.joinable()) thread_.join();
  listeners_.clear();
}

}  // namespace cairn

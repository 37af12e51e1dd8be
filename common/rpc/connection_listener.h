// The TCP port of a gRPC server, in place of gRPC's own listener, which does not survive a lack of file descriptors
// (acceptor.h), and takes memory for any client (gate.h).
#ifndef CAIRN_COMMON_RPC_CONNECTION_LISTENER_H_
#define CAIRN_COMMON_RPC_CONNECTION_LISTENER_H_

#include <grpcpp/grpcpp.h>
#include <grpcpp/health_check_service_interface.h>

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/file/unique_fd.h"
#include "common/rpc/gate.h"
#include "common/rpc/health_board.h"
#include "common/rpc/listening_sockets.h"
#include "common/rpc/peer_keys.h"

namespace cairn {

// Call in this order: Listen, AddTo, the builder's BuildAndStart, Serve, Stop, the server's Shutdown.
class ConnectionListener {
 public:
  // Listens at "host:port" as ListenAt does. Connections wait until Serve. `keys` returns the current keys by which
  // peers prove themselves, or null if there are none yet. If `keys` is unset, no proof is needed (--insecure).
  // INVALID_ARGUMENT (BAD_REQUEST): no address can be bound. RESOURCE_EXHAUSTED (MEMORY_LIMIT): there is no descriptor
  // left.
  using KeysNow = std::function<std::shared_ptr<const PeerKeys>()>;
  static absl::StatusOr<std::unique_ptr<ConnectionListener>> Listen(const std::string& address, KeysNow keys);
  ~ConnectionListener() { Stop(); }

  // Prepares the builder's server to receive the connections. Must be called once.
  void AddTo(grpc::ServerBuilder& builder);
  // Passes connections to the server, which must live until Stop. RESOURCE_EXHAUSTED (MEMORY_LIMIT): the system refused
  // a thread.
  absl::Status Serve(grpc::Server& server);
  // Closes the port. The server keeps the connections that it already has. Idempotent.
  void Stop();

  // Sets what the health service answers for one service, or for all services, to peers and to strangers. Thread-safe;
  // after Serve.
  void SetServing(const std::string& service, bool serving);
  void SetAllServing(bool serving);

  int port() const { return port_; }
  // Returns "host:port" with the port that was bound.
  const std::string& address() const { return address_; }

 private:
  explicit ConnectionListener(ListeningSockets listening);
  void Pass(int listener, UniqueFd connection);

  const int port_;
  const std::string address_;
  HealthBoard health_;
  std::vector<UniqueFd> listeners_;
  std::unique_ptr<Gate> gate_;
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> acceptor_;
  grpc::HealthCheckServiceInterface* server_health_ = nullptr;  // null: the server has no health service
  std::thread thread_;
};

}  // namespace cairn

#endif  // CAIRN_COMMON_RPC_CONNECTION_LISTENER_H_

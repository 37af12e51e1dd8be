// The TCP port of a gRPC server, in place of gRPC's own listener, which does not survive a lack of file descriptors
// (acceptor.h), and takes memory for whoever connects (gate.h).
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
#include "common/rpc/peer_keys.h"

namespace cairn {

// Used in this order: Listen, AddTo, BuildAndStart of the builder, Serve, Stop, Shutdown of the server.
class ConnectionListener {
 public:
  // Listens at "host:port"; port 0 takes a free one. A name may have several addresses, and all of them get the same
  // port; those that cannot be bound are left out if one can be, and the log says so if somebody else listens there
  // (port_shared). The wildcards "0.0.0.0" and "[::]" both mean all addresses of both families, as in gRPC. Connections
  // wait until Serve. `keys` returns those by which peers prove themselves now, null if there are none yet; if it is
  // unset, nobody has to (--insecure). BAD_REQUEST: no address can be bound. RESOURCE_EXHAUSTED (MEMORY_LIMIT): there
  // is no descriptor left.
  using KeysNow = std::function<std::shared_ptr<const PeerKeys>()>;
  static absl::StatusOr<std::unique_ptr<ConnectionListener>> Listen(const std::string& address, KeysNow keys);
  ~ConnectionListener() { Stop(); }

  // The server of this builder gets the connections. To be called once.
  void AddTo(grpc::ServerBuilder& builder);
  // Gives the server its connections from here on. It must live until Stop. RESOURCE_EXHAUSTED (MEMORY_LIMIT): the
  // system refused a thread.
  absl::Status Serve(grpc::Server& server);
  // Closes the port. Connections that were taken stay with the server. Idempotent.
  void Stop();

  // Sets what the health service says of a service, or of all that it knows, to peers and to strangers. Thread-safe,
  // after Serve.
  void SetServing(const std::string& service, bool serving);
  void SetAllServing(bool serving);

  int port() const { return port_; }

 private:
  explicit ConnectionListener(std::vector<UniqueFd> listeners);
  void Pass(int listener, UniqueFd connection);

  const int port_;
  HealthBoard health_;
  std::vector<UniqueFd> listeners_;
  std::unique_ptr<Gate> gate_;
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> acceptor_;
  grpc::HealthCheckServiceInterface* server_health_ = nullptr;  // null: the server tells nothing of it
  std::thread thread_;
};

}  // namespace cairn

#endif  // CAIRN_COMMON_RPC_CONNECTION_LISTENER_H_

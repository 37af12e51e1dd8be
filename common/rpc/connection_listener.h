// The TCP port of a gRPC server, in place of gRPC's own listener, which does not survive a lack of file descriptors
// (accept_loop.h).
#ifndef CAIRN_COMMON_RPC_CONNECTION_LISTENER_H_
#define CAIRN_COMMON_RPC_CONNECTION_LISTENER_H_

#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/clock.h"
#include "common/file/unique_fd.h"
#include "common/rpc/accept_loop.h"

namespace cairn {

// Used in this order: Listen, AddTo, BuildAndStart of the builder, Serve, Stop, Shutdown of the server.
class ConnectionListener {
 public:
  // Listens at "host:port"; port 0 takes a free one. A name may have several addresses, and all of them get the same
  // port; those that cannot be bound are left out if one can be, and the log says so if somebody else listens there
  // (port_shared). The wildcards "0.0.0.0" and "[::]" both mean all addresses of both families, as in gRPC. Connections
  // wait until Serve. BAD_REQUEST: no address can be bound.
  static absl::StatusOr<std::unique_ptr<ConnectionListener>> Listen(const std::string& address);
  ~ConnectionListener() { Stop(); }

  // The server of this builder gets the connections. To be called once.
  void AddTo(grpc::ServerBuilder& builder);
  // Gives the server its connections from here on. RESOURCE_EXHAUSTED (MEMORY_LIMIT): the system refused a thread.
  absl::Status Serve();
  // Closes the port. Connections that were taken stay with the server. Idempotent.
  void Stop();

  int port() const { return port_; }

 private:
  ConnectionListener(std::vector<UniqueFd> listeners, UniqueFd wake);
  void Run();

  const int port_;
  const UniqueFd wake_;  // an eventfd: written once, to end
  std::vector<UniqueFd> listeners_;
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> acceptor_;
  AcceptLoop loop_{Clock::Real()};
  std::thread thread_;
};

}  // namespace cairn

#endif  // CAIRN_COMMON_RPC_CONNECTION_LISTENER_H_

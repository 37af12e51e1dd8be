// A gRPC server on a Unix socket that knows its peers' users, which gRPC's own listener does not.
#ifndef CAIRN_AGENT_TRAINER_SERVICE_LOCAL_SERVER_H_
#define CAIRN_AGENT_TRAINER_SERVICE_LOCAL_SERVER_H_

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/grpcpp.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "agent/sockets/peer.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/file/unique_fd.h"
#include "common/rpc/accept_loop.h"

namespace cairn {

// Layouts travel whole.
inline constexpr int kMaxLocalMessageBytes = 68 << 20;

// Thread-safe.
class LocalServer {
 public:
  // Listens at `path`, for the users of `policy` to call `service`; everyone else gets PEER_UID for every call, and
  // cannot make the server read more than a few bytes. FAILED_PRECONDITION (SOCKET_DIRECTORY).
  static absl::StatusOr<std::unique_ptr<LocalServer>> Listen(const std::string& path, UserPolicy policy,
                                                             grpc::Service* service);
  // Takes connections from here on; those that came before have waited. To be called once.
  // RESOURCE_EXHAUSTED (MEMORY_LIMIT): the system refused a thread.
  absl::Status Serve();
  ~LocalServer();

  // The process behind a call, by the peer that its context names; nothing if that is not known.
  std::optional<Caller> CallerOf(const std::string& peer);

  // No new calls; those that are held are cancelled after `grace`. Idempotent.
  void Shutdown(absl::Duration grace);

  const std::string& path() const { return path_; }

 private:
  class Refusal;

  LocalServer(std::string path, UserPolicy policy, UniqueFd listener, UniqueFd wake);
  void Accept();

  const std::string path_;
  const UserPolicy policy_;
  const UniqueFd listener_;
  const UniqueFd wake_;  // an eventfd: written once, to end
  AcceptLoop loop_{Clock::Real()};
  std::unique_ptr<Refusal> refusal_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<grpc::Server> refusing_server_;
  Mutex mutex_;
  std::map<int, Caller> callers_ ABSL_GUARDED_BY(mutex_);  // by descriptor number, which gRPC names its peers by
  bool shut_down_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace cairn

#endif  // CAIRN_AGENT_TRAINER_SERVICE_LOCAL_SERVER_H_

// A gRPC server on a Unix socket that checks the users of its callers. gRPC's own listener cannot do this.
#ifndef CAIRN_AGENT_TRAINER_SERVICE_LOCAL_SERVER_H_
#define CAIRN_AGENT_TRAINER_SERVICE_LOCAL_SERVER_H_

#include <grpcpp/grpcpp.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "agent/sockets/peer.h"
#include "common/base/mutex.h"
#include "common/file/unique_fd.h"
#include "common/rpc/gate.h"

namespace cairn {

// The maximum size of one message; a layout is sent in one message.
inline constexpr int kMaxLocalMessageBytes = 68 << 20;

// Thread-safe.
class LocalServer {
 public:
  // Listens at `path`. The users of `policy` may call `services`. Every call of another user fails with PEER_UID, and
  // the memory that it can take is bounded (common/rpc/stranger_session.h). FAILED_PRECONDITION (SOCKET_DIRECTORY): as
  // ListenOnUnixSocket.
  static absl::StatusOr<std::unique_ptr<LocalServer>> Listen(const std::string& path, UserPolicy policy,
                                                             const std::vector<grpc::Service*>& services);
  // Begins to accept connections, including those that wait already. Must be called once. RESOURCE_EXHAUSTED
  // (MEMORY_LIMIT): the system refused a thread.
  absl::Status Serve();
  ~LocalServer();

  // Returns the process that makes a call, by its ServerContext::peer(); nothing for an unknown peer.
  std::optional<Caller> CallerOf(const std::string& peer);

  // Refuses new calls, and cancels held ones after `grace`. Idempotent.
  void Shutdown(absl::Duration grace);

  const std::string& path() const { return path_; }

 private:
  LocalServer(std::string path, UserPolicy policy, UniqueFd listener);
  // Returns whether the policy allows the user at the other end.
  bool Knows(int connection);
  void Pass(UniqueFd connection);

  const std::string path_;
  const UserPolicy policy_;
  const UniqueFd listener_;
  std::unique_ptr<Gate> gate_;
  absl::Time refusal_logged_ = absl::InfinitePast();  // used by the gate's thread only
  std::unique_ptr<grpc::Server> server_;
  Mutex mutex_;
  std::map<int, Caller> callers_
      ABSL_GUARDED_BY(mutex_);  // by descriptor number, which is part of gRPC's name of a peer
  bool shut_down_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace cairn

#endif  // CAIRN_AGENT_TRAINER_SERVICE_LOCAL_SERVER_H_

// A gRPC server on a Unix socket that knows its peers' users, which gRPC's own listener does not.
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

// Layouts travel whole.
inline constexpr int kMaxLocalMessageBytes = 68 << 20;

// Thread-safe.
class LocalServer {
 public:
  // Listens at `path`, for the users of `policy` to call `services`; everyone else gets PEER_UID for every call, and
  // cannot make the server read more than a few bytes. FAILED_PRECONDITION (SOCKET_DIRECTORY).
  static absl::StatusOr<std::unique_ptr<LocalServer>> Listen(const std::string& path, UserPolicy policy,
                                                             const std::vector<grpc::Service*>& services);
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
  LocalServer(std::string path, UserPolicy policy, UniqueFd listener);
  // Whether the user at the other end may come in.
  bool Knows(int connection);
  void Pass(UniqueFd connection);

  const std::string path_;
  const UserPolicy policy_;
  const UniqueFd listener_;
  std::unique_ptr<Gate> gate_;
  absl::Time refusal_logged_ = absl::InfinitePast();  // of the gate's thread
  std::unique_ptr<grpc::Server> server_;
  Mutex mutex_;
  std::map<int, Caller> callers_ ABSL_GUARDED_BY(mutex_);  // by descriptor number, which gRPC names its peers by
  bool shut_down_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace cairn

#endif  // CAIRN_AGENT_TRAINER_SERVICE_LOCAL_SERVER_H_

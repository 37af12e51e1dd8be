// The coordinator as a server: gRPC in front, the decisions of each job under a lock, workers and storage behind.
#ifndef CAIRN_COORDINATOR_SERVER_SERVER_H_
#define CAIRN_COORDINATOR_SERVER_SERVER_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/rpc/token_source.h"
#include "coordinator/decision/job_context.h"
#include "planner/save/save_plan.h"
#include "store/mirror/mirror.h"
#include "store/storage/storage.h"

namespace cairn {

struct ServerOptions {
  std::string listen = "127.0.0.1:0";
  std::string metrics_listen;  // where Prometheus may ask; empty: nowhere
  // By these callers prove themselves. Null, or with --insecure: nobody has to; whether `listen` may be so is the
  // caller's to check.
  std::shared_ptr<TokenSource> tokens;
  SaveOptions save;           // of all save plans
  DecisionOptions decisions;  // with the coordinator's epoch
  std::optional<MirrorOptions> mirror;
};

// Thread-safe.
class CoordinatorServer {
 public:
  // Starts serving. `root` is the lock of `storage`, and is checked before everything that is decided there. All three
  // must outlive the server.
  // UNAVAILABLE (COORDINATOR_UNREACHABLE), INVALID_ARGUMENT (BAD_REQUEST): an address cannot be bound; and the errors
  // of storage.
  static absl::StatusOr<std::unique_ptr<CoordinatorServer>> Start(ServerOptions options, Storage& storage,
                                                                  const RootLock& root, const Clock& clock);
  // Stops as Drain(0) does. If storage still holds a thread, nothing that this thread may use is ever freed; storage
  // and clock must then stay too.
  ~CoordinatorServer();

  // "host:port" with the port that was bound.
  const std::string& address() const;
  // The same of ServerOptions.metrics_listen; empty if there is none.
  std::string metrics_address() const;
  // Takes no new saves, lets those in flight go on for `timeout` at most, answers all held calls, and stops. Agents
  // notice the end by their next call. Returns false if storage still holds a thread; then the process can only end by
  // _exit. Idempotent.
  bool Drain(absl::Duration timeout);
  // After Drain: true if the mirror's storage is all that holds a thread, so that nothing of the root is left undone.
  bool only_mirror_stalls() const;

 private:
  class Impl;
  explicit CoordinatorServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace cairn

#endif  // CAIRN_COORDINATOR_SERVER_SERVER_H_

// The agent's side of AgentCoordinationService: keeps it registered, exchanges state for orders in one long-poll loop,
// and moves layouts and plans. Every call has a deadline; failed ones are tried again with growing pauses. A call
// that an overloaded coordinator refuses waits as long as it says, while the loop goes on (link_pace.h).
//
// A coordinator may come back at another address under the same name, while packets to the old address vanish. A
// connection notices that only after its keepalive. So a new connection is made after each call that could not reach
// the coordinator; and if an answer is overdue, one is tried beside the call that waits, and takes its place if it
// answers first.
#ifndef CAIRN_AGENT_RUNTIME_COORDINATOR_LINK_H_
#define CAIRN_AGENT_RUNTIME_COORDINATOR_LINK_H_

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "agent/host/session_host.h"
#include "agent/runtime/link_pace.h"
#include "cairn/v1/agent_coordination_service.grpc.pb.h"
#include "cairn/v1/checkpoint_service.grpc.pb.h"
#include "common/base/mutex.h"
#include "common/process/task_queue.h"
#include "common/rpc/peer_channel.h"
#include "common/rpc/short_report.h"
#include "common/rpc/token_source.h"

namespace cairn {

struct CoordinatorLinkOptions {
  std::string address;
  std::shared_ptr<TokenSource> tokens;
  // It has everything but the identity.
  v1::RegisterAgentRequest registration;
  // The first reads what stands below the root, to show at each registration that it is the coordinator's storage. The
  // second is told when the coordinator has taken it.
  std::function<std::string()> read_root_proof;
  std::function<void(const std::string& proof)> on_registered;
  // The coordinator's root, which people read.
  std::string root;
  // Returns the trainer's step now.
  std::function<std::optional<int64_t>()> current_step;
  // A rank that another agent holds, or a world size that others disagree with, is asked for again so long: after a
  // crash the lease of the one before must end first. So long, too, for a root that is not the coordinator's (yet), and
  // for a token that the coordinator takes.
  absl::Duration register_timeout = absl::Seconds(20);
  // Called by the link's thread when the coordinator answers again, and when a call has failed.
  std::function<void(bool answers)> on_heard;
  // The coordinator will not take this agent (STALE_INCARNATION, a bad rank or job; RANK_CONFLICT, WORLD_SIZE_MISMATCH,
  // ROOT_MISMATCH or BAD_TOKEN for all of register_timeout): it must end.
  std::function<void(const absl::Status&)> on_fatal;
};

// Thread-safe.
class CoordinatorLink {
 public:
  CoordinatorLink(SessionHost& host, CoordinatorLinkOptions options);
  ~CoordinatorLink();

  void Start();
  // Ends all calls; with `unregister`, gives the rank back, and awaits a registration that is under way for that.
  // Idempotent.
  void Stop(bool unregister);

  // Sends the state now rather than at the end of the current wait.
  void Nudge();

  // The session's events answer these.
  void PutLayout(RankLayoutPtr layout);
  void GetPlan(std::string digest, std::string known);
  void GetPeers(std::vector<uint32_t> ranks);

  // Returns the connection that calls take now. Stop ends it for new calls.
  std::shared_ptr<PeerChannel> peer();

 private:
  // A call that Stop ends.
  class StoppableCall;
  class Trial;
  // How the call of SynchronizeAgent ends.
  struct Answer;

  std::shared_ptr<PeerChannel> MakePeer() const;
  // Later calls go over this connection.
  void Use(std::shared_ptr<PeerChannel> peer);
  // Tells on_heard what has changed.
  void Heard(bool answers);

  void Loop();
  // Waits from half to all of this time, so that a thousand agents do not come back together; less if something
  // changes.
  void Pause(absl::Duration longest);
  // Waits until the pace lets a call begin; false if the link was stopped meanwhile.
  bool AwaitTurn(absl::Time (LinkPace::*from)() const);
  // True for the refusal of an overloaded coordinator; then its delay is kept.
  bool NoteOverload(const absl::Status& status);
  // An upload or download: waits for its turn, and repeats what an overloaded coordinator refuses. Blocks.
  template <typename Request, typename Response>
  absl::Status Transfer(grpc::Status (v1::AgentCoordinationService::Stub::*method)(grpc::ClientContext*, const Request&,
                                                                                   Response*),
                        Request& request, Response& response);
  absl::Status Register();
  // Returns whether the coordinator has answered: a newer state may have ended the call.
  absl::StatusOr<bool> Synchronize();
  // The call itself. Tries another connection if the answer is overdue; INTERRUPTED if that one is used now, or the
  // call was ended.
  absl::Status CallSynchronize(StoppableCall& call, absl::Duration max_wait, const v1::SynchronizeAgentRequest& request,
                               v1::SynchronizeAgentResponse& response);
  absl::Status SendLayout(const RankLayout& layout);
  absl::StatusOr<std::string> FetchPlan(const std::string& digest, const std::string& known);
  absl::StatusOr<v1::GetTransferPeersResponse> FetchPeers(const std::vector<uint32_t>& ranks);
  // The error of a call.
  absl::Status ErrorOf(const grpc::Status& status) const;

  SessionHost& host_;
  const CoordinatorLinkOptions options_;
  std::atomic<bool> stopping_ = false;
  Mutex mutex_;
  CondVar stopped_;
  std::mt19937 random_ ABSL_GUARDED_BY(mutex_){std::random_device{}()};
  LinkPace pace_ ABSL_GUARDED_BY(mutex_);
  std::set<grpc::ClientContext*> calls_ ABSL_GUARDED_BY(mutex_);
  grpc::ClientContext* waiting_ ABSL_GUARDED_BY(mutex_) = nullptr;  // the call that a change ends
  grpc::ClientContext* registering_ ABSL_GUARDED_BY(mutex_) = nullptr;
  std::shared_ptr<PeerChannel> peer_ ABSL_GUARDED_BY(mutex_);
  // Only the thread of the loop touches it.
  std::optional<bool> heard_;
  absl::Duration lease_ttl_ = absl::Seconds(10);
  // The first call of those that have had no answer began then.
  absl::Time unanswered_since_ = absl::InfiniteFuture();
  ReportShortener reports_;
  std::string last_plan_;  // the current plan of the last orders that were applied
  TaskQueue transfers_{2};
  std::thread thread_;
};

}  // namespace cairn

#endif  // CAIRN_AGENT_RUNTIME_COORDINATOR_LINK_H_

// One rank's agent: its session, what carries out the session's decisions, its trainer, its sockets and its clock.
#ifndef CAIRN_AGENT_RUNTIME_AGENT_H_
#define CAIRN_AGENT_RUNTIME_AGENT_H_

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "agent/execution/device_executor.h"
#include "agent/execution/executor_context.h"
#include "agent/execution/load_executor.h"
#include "agent/execution/root_guard.h"
#include "agent/execution/save_executor.h"
#include "agent/execution/transfer_counters.h"
#include "agent/host/session_host.h"
#include "agent/host/trainer_watch.h"
#include "agent/reader/buffer_pool.h"
#include "agent/runtime/coordinator_link.h"
#include "agent/sockets/descriptor_socket.h"
#include "agent/sockets/peer.h"
#include "agent/sockets/predecessor.h"
#include "agent/sockets/process_status.h"
#include "agent/staging/control_page.h"
#include "agent/transport/exchange.h"
#include "agent/transport/transfer_context.h"
#include "agent/transport/transfer_service.h"
#include "common/base/mutex.h"
#include "common/rpc/connection_listener.h"
#include "store/storage/storage.h"

namespace cairn {

// Thread-safe.
class Agent {
 public:
  // Checks storage and socket directory, starts `exchange`, by which bytes move between ranks, then starts to register.
  // Does not wait for the coordinator.
  // FAILED_PRECONDITION (SOCKET_DIRECTORY, NOT_LOOPBACK), NOT_FOUND (ROOT_MISSING), UNAUTHENTICATED (BAD_TOKEN), and
  // others of storage.
  static absl::StatusOr<std::unique_ptr<Agent>> Start(AgentOptions options, std::unique_ptr<Exchange> exchange);
  ~Agent();

  SessionHost& host() { return host_; }
  CoordinatorLink& link() { return *link_; }
  const AgentOptions& options() const { return options_; }
  const std::string& descriptor_socket() const { return descriptors_->path(); }
  uint64_t incarnation() const { return incarnation_; }

  // A trainer begins its session, or continues it. `end` tells when the trainer is gone. If `end` has neither a process
  // nor a connection to look at, nobody tells, and what the trainer had begun ends by its timeouts. Errors are those of
  // LocalAgentService.
  absl::StatusOr<v1::AttachResponse> Attach(const v1::AttachRequest& request, const Peer& peer, const PeerEnd& end);
  // The trainer may have been detached meanwhile.
  void TrainerGone(uint64_t incarnation, TrainerEnd how);

  // Returns where other agents reach this one, and where gRPC's health service says whether this agent serves.
  const std::string& transfer_address() const { return transfer_address_; }

  LoadExecutor& loads() { return *loads_; }
  const TransferCounters& counters() const { return counters_; }
  // The shared memory of slab and read buffers, bytes.
  uint64_t memory_held() const { return pool_.held(); }

  // Waits until staged saves have their outcomes, at most for `timeout`, and not after a fatal error, because then none
  // comes. Then a trainer that is there has a second to ask how they ended. DEADLINE_EXCEEDED (TIMED_OUT): some are
  // left, which the message names.
  absl::Status Drain(absl::Duration timeout);
  // From now on the session changes no more; calls that wait are given up by their server.
  void Quiesce();
  // Reads the tokens again, soon, without blocking. To be called every few seconds.
  void ReadTokens() { tokens_->ReloadSoon(); }
  // Ends everything; with `unregister` the rank is given back. Idempotent.
  void Stop(bool unregister);

 private:
  Agent(AgentOptions options, std::shared_ptr<TokenSource> tokens, std::unique_ptr<Exchange> exchange);
  // Returns the keys by which other agents prove themselves: those of the token that this agent has now.
  ConnectionListener::KeysNow TransferKeys() const;
  absl::Status StartTransferServer();
  // Returns when a save had an outcome last, as far as this was seen: by the ticker, or by this call.
  absl::Time LastOutcome();
  // Lets the trainer ask how its saves ended, until then or until it has gone.
  void LetTrainerAsk(absl::Time deadline);
  AgentPlace Place() const;
  // Leaves to the next process what may hold the rank. If it cannot, that one waits for the end of the lease.
  void LeaveIncarnations(const std::vector<uint64_t>& incarnations) const;
  // Returns what the coordinator is told of the exchange.
  v1::NcclSupport StartExchange();
  void Execute(Action action);
  void ApplyToPage(const v1::ArmOrder& order);
  std::optional<int64_t> CurrentStep();
  // The trainer's control page; null if there is none.
  std::shared_ptr<ControlPage> Page();
  // Tells the session how the trainer's process stands.
  void LookAtTrainer();
  void Tick();

  const AgentOptions options_;
  const uint64_t incarnation_;
  const std::shared_ptr<TokenSource> tokens_;
  std::unique_ptr<Storage> storage_;
  std::unique_ptr<RootGuard> root_;
  std::unique_ptr<DescriptorSocket> descriptors_;
  std::string transfer_address_;
  const std::string boot_id_;
  BufferPool pool_;
  TransferCounters counters_;
  TransferService transfers_;

  Mutex attaching_;  // one trainer after the other; taken before `mutex_`

  Mutex mutex_;
  CondVar ended_;
  std::shared_ptr<ControlPage> page_ ABSL_GUARDED_BY(mutex_);
  uint64_t page_id_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t page_trainer_ ABSL_GUARDED_BY(mutex_) = 0;
  std::unique_ptr<ProcessStatus> process_ ABSL_GUARDED_BY(mutex_);  // of that trainer; null if it cannot be seen
  uint64_t outcomes_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Time last_outcome_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  std::atomic<bool> refused_ = false;  // the coordinator will never take this agent

  SessionHost host_;
  std::unique_ptr<TransferContext> transfer_;  // made by Start
  const std::unique_ptr<Exchange> exchange_;
  std::unique_ptr<SaveExecutor> saves_;
  std::unique_ptr<LoadExecutor> loads_;
  std::unique_ptr<DeviceExecutor> devices_;
  std::unique_ptr<CoordinatorLink> link_;
  std::unique_ptr<TrainerWatch> watch_;
  std::unique_ptr<grpc::Server> transfer_server_;
  std::unique_ptr<ConnectionListener> transfer_listener_;  // ends before the server that it serves
  std::thread ticker_;
};

}  // namespace cairn

#endif  // CAIRN_AGENT_RUNTIME_AGENT_H_

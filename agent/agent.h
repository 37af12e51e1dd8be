// One rank's agent: carries out what its session decides, with threads, memory, files and sockets.
#ifndef CAIRN_AGENT_AGENT_H_
#define CAIRN_AGENT_AGENT_H_

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "agent/coordinator_link.h"
#include "agent/local/descriptor_socket.h"
#include "agent/local/trainer_watch.h"
#include "agent/reader/buffer_pool.h"
#include "agent/reader/round_source.h"
#include "agent/session_host.h"
#include "agent/staging/control_page.h"
#include "agent/staging/shared_memory.h"
#include "agent/task_queue.h"
#include "agent/transport/load_consumer.h"
#include "agent/transport/shard_fetcher.h"
#include "agent/transport/slab_lender.h"
#include "agent/transport/transfer_service.h"
#include "agent/writer/bin_writer.h"
#include "common/storage/posix.h"

namespace cairn {

struct AgentOptions {
  std::string coordinator;
  std::string job;
  uint32_t rank = 0;
  uint32_t world_size = 1;
  std::string root;
  std::string listen = "127.0.0.1:0";
  // Address that other agents are told; empty: the one that was bound.
  std::string advertise;
  std::string socket_directory;  // empty: DefaultSocketDirectory
  std::string node;
  std::string token;
  std::vector<uid_t> allowed_users;
  // Directories below which loads may import. Needed only with `allowed_users`, who could read through this agent what
  // they cannot read themselves.
  std::vector<std::string> import_roots;
  uint64_t memory_budget = 0;  // 0: what the container and the machine allow
  // Small, so that reading and copying overlap and the copies find their bytes in the processor's cache.
  uint64_t round_bytes = uint64_t{32} << 20;
  int io_threads = 2;
  bool direct_io = true;
  // False: bytes between agents always go over gRPC.
  bool shared_memory = true;
  absl::Duration register_timeout = absl::Seconds(20);
  // Called once, from a thread of the agent, if it must end: the coordinator has refused it for good.
  std::function<void(const absl::Status&)> on_fatal;
};

// Thread-safe.
class Agent {
 public:
  // Checks storage and socket directory, then starts to register. Does not wait for the coordinator.
  // FAILED_PRECONDITION (SOCKET_DIRECTORY, NOT_LOOPBACK), NOT_FOUND (ROOT_MISSING), and others of storage.
  static absl::StatusOr<std::unique_ptr<Agent>> Start(AgentOptions options);
  ~Agent();

  SessionHost& host() { return host_; }
  CoordinatorLink& link() { return *link_; }
  const AgentOptions& options() const { return options_; }
  const std::string& descriptor_socket() const { return descriptors_->path(); }

  // A trainer begins its session. `pid`: its process, if the kernel said so.
  absl::StatusOr<v1::AttachResponse> Attach(const v1::AttachRequest& request, std::optional<pid_t> pid);
  void TrainerGone(uint64_t incarnation, bool detached);

  // Where other agents reach this one.
  const std::string& transfer_address() const { return transfer_address_; }

  // What delivers a load's bytes to the trainer; null before it has begun to read and after its end.
  std::shared_ptr<LoadConsumer> FindLoad(uint64_t number);
  // Tells the session how far a load is, before the next tick would.
  void ReportLoad(uint64_t number);

  // Waits until staged saves have their verdicts, at most for `timeout`. True if none is left.
  bool Drain(absl::Duration timeout);
  // From now on the session changes no more; calls that wait are given up by their server.
  void Quiesce();
  // Ends everything; with `unregister` the rank is given back. Idempotent.
  void Stop(bool unregister);

 private:
  struct WriterRun {
    uint64_t save = 0;
    std::atomic<bool> stop = false;
    std::atomic<uint64_t> bytes_done = 0;
    // Null if nothing is moved in.
    std::shared_ptr<ShardFetcher> fetcher;
    void Stop() {
      stop = true;
      if (fetcher != nullptr) fetcher->Stop();
    }
  };

  // Of the slab of the save that is being written or awaits its verdict.
  struct Lent {
    uint64_t save = 0;
    TransferService::Key key;
    uint64_t descriptor_id = 0;
  };

  // Both sides of one load.
  struct ActiveLoad {
    uint64_t number = 0;
    std::string plan_digest;
    std::shared_ptr<RoundLender> source;
    std::shared_ptr<LoadConsumer> consumer;
    // Of a reshard: `source` itself, and the ids of its memory, for this rank's trainer and for the others.
    std::shared_ptr<SlabLender> lender;
    uint64_t writable_id = 0;
    uint64_t read_only_id = 0;
  };

  explicit Agent(AgentOptions options);
  absl::Status StartTransferServer();
  void Execute(Action action);
  void MakeSlab(uint64_t bytes);
  void StartWrite(const action::StartWrite& order);
  // Lends what other ranks write of this one's.
  absl::Status Lend(const action::StartWrite& order, const std::shared_ptr<SharedMemory>& slab);
  void EndLending(uint64_t save);
  void StartRead(const action::StartRead& order);
  // Memory for the source of a reshard.
  absl::Status MakeSource(const action::StartRead& order, ActiveLoad& load);
  std::shared_ptr<RoundSource> MakeReader(const action::StartRead& order);
  void StopRead(uint64_t number);
  void DestroyRetired();
  void ReportProgress(const ActiveLoad& load);
  void ApplyToPage(const v1::ArmOrder& order);
  std::optional<int64_t> CurrentStep();
  void Tick();

  const AgentOptions options_;
  const uint64_t incarnation_;
  std::unique_ptr<PosixStorage> storage_;
  std::unique_ptr<DescriptorSocket> descriptors_;
  std::string transfer_address_;
  const std::string boot_id_;
  BufferPool pool_;
  TransferService transfers_;

  Mutex mutex_;
  CondVar ended_;
  std::shared_ptr<ControlPage> page_ ABSL_GUARDED_BY(mutex_);
  uint64_t page_id_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t page_trainer_ ABSL_GUARDED_BY(mutex_) = 0;
  std::shared_ptr<SharedMemory> slab_ ABSL_GUARDED_BY(mutex_);
  uint64_t slab_id_ ABSL_GUARDED_BY(mutex_) = 0;
  std::shared_ptr<WriterRun> writing_ ABSL_GUARDED_BY(mutex_);
  std::vector<Lent> lent_ ABSL_GUARDED_BY(mutex_);
  std::map<uint64_t, ActiveLoad> loads_ ABSL_GUARDED_BY(mutex_);  // by number
  // Ended, but perhaps still in use by a call: the last user must not be one of gRPC's threads, which would then have
  // to end its own channel.
  std::vector<std::shared_ptr<LoadConsumer>> retired_ ABSL_GUARDED_BY(mutex_);
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;

  SessionHost host_;
  std::unique_ptr<CoordinatorLink> link_;
  std::unique_ptr<TrainerWatch> watch_;
  std::unique_ptr<grpc::Server> transfer_server_;
  std::thread writer_;  // of the thread that executes actions
  TaskQueue background_{2};
  TaskQueue loads_queue_{1};  // in order: a load is not ended before it has begun
  std::thread ticker_;
};

}  // namespace cairn

#endif  // CAIRN_AGENT_AGENT_H_

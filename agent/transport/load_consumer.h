// The consumer's side of a load: follows the rounds of every rank it takes bytes from, and hands batches of copies to
// the trainer as their bytes become reachable. Same machine: the trainer copies straight out of the source's buffer.
// Else the bytes are fetched into a window of this agent.
#ifndef CAIRN_AGENT_TRANSPORT_LOAD_CONSUMER_H_
#define CAIRN_AGENT_TRANSPORT_LOAD_CONSUMER_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "agent/reader/buffer_pool.h"
#include "agent/reader/round_byte_server.h"
#include "agent/session/session.h"
#include "agent/transport/copy_packer.h"
#include "cairn/v1/local_agent_service.pb.h"
#include "cairn/v1/transfer_service.grpc.pb.h"
#include "common/process/task_queue.h"

namespace cairn {

struct LoadConsumerOptions {
  std::string job;
  uint32_t rank = 0;
  std::string boot_id;
  // The socket of this agent, for its own buffers and windows.
  std::string descriptor_socket;
  std::string token;
  bool shared_memory = true;
  // Windows that may be out at once, bytes; one is always allowed.
  uint64_t window_bytes = 0;
  // A source that cannot be reached for so long ends the load.
  absl::Duration unreachable_timeout = absl::Seconds(15);
  std::function<absl::StatusOr<uint64_t>(std::shared_ptr<SharedMemory>)> offer;
  std::function<void(uint64_t)> withdraw;
  // The first error; called without a lock.
  std::function<void(const absl::Status&)> on_error;
};

// Thread-safe.
class LoadConsumer {
 public:
  // `own` lends this rank's rounds.
  LoadConsumer(ReadPlanPtr plan, const v1::LoadOrder& order, std::shared_ptr<ByteServer> own, BufferPool& pool,
               LoadConsumerOptions options);
  // Stops. `own` must have been stopped before.
  ~LoadConsumer();

  // Begins to follow the sources.
  void Start();
  // Ends all calls and waits for them; those who wait are told `why`. Idempotent.
  void Stop(const absl::Status& why);

  struct Received {
    std::vector<v1::LoadBatch> batches;
    bool complete = false;
  };
  using Done = std::function<void(absl::StatusOr<Received>)>;
  // Takes `released` back, then calls `done` once: with the batches that are ready, when all have been given, or with
  // the error of the load. Returns a number to forget the call by; 0 if `done` was called already.
  uint64_t Receive(const std::vector<uint64_t>& released, Done done);
  void Forget(uint64_t call);
  // The trainer has copied all batches.
  void ReleaseAll();

  // "shared-memory", "grpc", both joined by '+'; empty if nothing came from another rank.
  std::string transport();

 private:
  // One rank that bytes come from.
  struct Source {
    uint32_t rank = 0;
    uint64_t incarnation = 0;
    std::string address;
    std::string descriptor_socket;                     // of the agent whose buffers the trainer maps
    bool local = false;                                // this agent itself
    bool mapped = false;                               // the trainer maps its buffers
    std::vector<uint32_t> rounds;                      // that have something for this rank, ascending
    std::map<uint32_t, std::vector<v1::Copy>> copies;  // by round; given away with the batch
    size_t next = 0;                                   // into rounds: being awaited
    std::set<uint32_t> held;                           // rounds that came and are not released
    std::map<uint32_t, size_t> fetching;               // groups of a round that are not fetched yet
    std::shared_ptr<v1::TransferService::Stub> stub;
  };
  struct Batch {
    size_t source = 0;
    uint32_t round = 0;
    std::shared_ptr<SharedMemory> window;  // null if the source's buffer is mapped
    uint64_t window_id = 0;
    uint64_t window_bytes = 0;
  };
  struct Call;

  void AwaitNext(size_t source);
  // One call to a source; with `notice` only its releases.
  void StartCall(std::shared_ptr<Call> call);
  void OnAnswer(Call& call, const grpc::Status& status);
  void SendReleases(size_t source);
  void OnRound(size_t source, uint32_t round, uint64_t descriptor_id, uint64_t bytes);
  // Part of the copies of one round, which share its release.
  absl::Status Fetch(size_t source, uint32_t round, const CopyWindow& window);
  absl::Status FetchInto(const Source& source, uint32_t round, const std::vector<v1::Copy>& copies, char* window,
                         uint64_t bytes);
  void Release(uint64_t batch, std::vector<size_t>& sources) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void AwaitStop(absl::Duration timeout);
  void Fail(const absl::Status& status);
  void Answer();
  v1::TransferIdentity Identity(const Source& source) const;
  uint32_t ReleasedBelow(const Source& source) const;

  const ReadPlanPtr plan_;
  const uint64_t number_;
  const std::string transfer_token_;
  const std::shared_ptr<ByteServer> own_;
  BufferPool& pool_;
  const LoadConsumerOptions options_;

  Mutex mutex_;
  CondVar changed_;
  std::vector<Source> sources_ ABSL_GUARDED_BY(mutex_);
  size_t to_come_ ABSL_GUARDED_BY(mutex_) = 0;  // batches that are not ready yet
  std::deque<v1::LoadBatch> ready_ ABSL_GUARDED_BY(mutex_);
  std::map<uint64_t, Batch> batches_ ABSL_GUARDED_BY(mutex_);  // ready or given
  uint64_t next_batch_ ABSL_GUARDED_BY(mutex_) = 1;
  uint64_t windows_out_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Status error_ ABSL_GUARDED_BY(mutex_);
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  uint64_t next_call_ ABSL_GUARDED_BY(mutex_) = 1;
  std::map<uint64_t, Done> waiting_ ABSL_GUARDED_BY(mutex_);
  std::map<Call*, std::shared_ptr<Call>> calls_ ABSL_GUARDED_BY(mutex_);  // to sources, under way
  std::set<grpc::ClientContext*> fetches_ ABSL_GUARDED_BY(mutex_);
  bool mapped_used_ ABSL_GUARDED_BY(mutex_) = false;
  bool fetched_used_ ABSL_GUARDED_BY(mutex_) = false;
  std::unique_ptr<TaskQueue> fetchers_;  // null if nothing is fetched
};

}  // namespace cairn

#endif  // CAIRN_AGENT_TRANSPORT_LOAD_CONSUMER_H_

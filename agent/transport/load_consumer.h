// The consumer's side of a load: follows the rounds of every rank it takes bytes from, and hands batches of copies to
// the trainer as their bytes become reachable. Same machine: the trainer copies straight out of the source's buffer.
// Else the bytes are fetched into a window of this agent.
#ifndef CAIRN_AGENT_TRANSPORT_LOAD_CONSUMER_H_
#define CAIRN_AGENT_TRANSPORT_LOAD_CONSUMER_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "agent/reader/buffer_pool.h"
#include "agent/reader/round_byte_server.h"
#include "agent/session/peer_book.h"
#include "agent/staging/memory_offers.h"
#include "agent/transport/consumer_ledger.h"
#include "agent/transport/copy_packer.h"
#include "agent/transport/round_fetcher.h"
#include "agent/transport/window_offers.h"
#include "cairn/v1/agent_coordination_service.pb.h"
#include "cairn/v1/local_agent_service.pb.h"
#include "common/base/mutex.h"
#include "common/process/task_queue.h"
#include "common/rpc/transport_use.h"

namespace cairn {

// Says where the trainer gets descriptors of one agent's memory.
struct DescriptorSource {
  std::string path;
  uint64_t incarnation = 0;  // of the agent that must answer there
};

struct LoadConsumerOptions {
  uint32_t rank = 0;
  uint64_t load = 0;  // its number, for the log
  std::string boot_id;
  // That of this agent, for its own buffers and windows.
  DescriptorSource socket;
  bool shared_memory = true;
  // Bytes that need a transport wait until GoByHost or TakeHeld says which one.
  bool held = false;
  // Says for people why they do not go over NCCL; empty if nobody wants that.
  std::string nccl_refusal;
  // Windows that may be out at once, bytes; one is always allowed.
  uint64_t window_bytes = 0;
  // The way to a source that is another rank.
  std::function<std::unique_ptr<RoundFetcher>(const v1::TransferPeer&)> connect;
  MemoryOffers offers;  // for the windows, which the trainer copies from
  // The first error; called without a lock.
  std::function<void(const absl::Status&)> on_error;
  // The trainer has copied all batches, so what transport() says is complete; called without a lock.
  std::function<void()> on_released = nullptr;
};

// Bytes that come from a rank in one transfer of an exchange over NCCL.
struct HeldWindow {
  size_t source = 0;  // as the ledger numbers it
  uint32_t rank = 0;
  OfferedCopies window;
};

// Thread-safe.
class LoadConsumer {
 public:
  // `peers` are the other ranks that the plan names as sources; `own` lends this rank's rounds.
  LoadConsumer(const v1::ReadPlan& plan, const PeerMap& peers, std::shared_ptr<ByteServer> own, BufferPool& pool,
               LoadConsumerOptions options);
  // Stops. `own` must have been stopped before.
  ~LoadConsumer();

  // Begins to follow the sources.
  void Start();
  // Makes what is held go over the host transport, because of `refusal`.
  void GoByHost(std::string refusal);
  // Makes what is held go over NCCL: gives away all that is taken from other ranks, in windows of at most
  // `window_bytes`, by (source, round, window). INVALID_ARGUMENT (BAD_REQUEST): the plan has copies that are none.
  absl::StatusOr<std::vector<HeldWindow>> TakeHeld(uint64_t window_bytes);
  // Says that a window has come, packed at `offset` of memory that the trainer is given by its id. `released` is called
  // once, when the trainer has copied it or never will; it may be called under a lock and must not call this object.
  void HandOutHeld(const HeldWindow& held, uint64_t memory_id, uint64_t memory_bytes, uint64_t offset,
                   std::function<void()> released);
  // Ends all calls and waits for them; those who wait are told `why`. Idempotent.
  void Stop(const absl::Status& why);

  using Received = ConsumerLedger::Received;
  // Returns false if the trainer cannot get the answer any more, because its call is over.
  using Done = std::function<bool(absl::StatusOr<Received>&)>;
  // Takes `released` back, then calls `done` once: with the batches that are ready, when all have been given, or with
  // the error of the load. Batches of an answer that was not got are given to the next call. One call waits at a time:
  // one that still waits is answered with no batch.
  void Receive(const std::vector<uint64_t>& released, Done done);
  // Takes what the trainer says of a batch of pieces. If it is not right, the bytes come in another batch.
  void TakeRead(const v1::ReadBatch& read);
  // The trainer has copied all batches.
  void ReleaseAll();

  // Says how bytes came from other ranks so far.
  TransportUse transport();

 private:
  // One rank that bytes come from.
  struct Source {
    uint32_t rank = 0;
    bool mapped = false;                    // the trainer maps its buffers; else their bytes are fetched
    DescriptorSource socket;                // of the agent whose buffers the trainer maps
    std::unique_ptr<RoundFetcher> fetcher;  // null for this rank itself, and for one without an address
  };
  // Memory that a batch was fetched into.
  struct Window {
    std::shared_ptr<SharedMemory> memory;
    uint64_t id = 0;
    std::function<void()> released = nullptr;  // set if the memory is not this object's
  };

  Source MakeSource(uint32_t rank, const PeerMap& peers) const;
  bool local(size_t source) const { return sources_[source].rank == options_.rank; }

  bool Holds(size_t source);
  // Asks the source for its next round.
  void AwaitNext(size_t source);
  void OnRound(size_t source, uint32_t round, const SourceRound& arrived);
  // Hands out a round of this rank that the trainer reads itself.
  void OnLentRound(size_t source, uint32_t round, const LentRound& lent);
  void OnChecked(uint64_t batch, ConsumerLedger::Place place, const absl::StatusOr<bool>& right);
  void HandOutMapped(size_t source, uint32_t round, const SourceRound& arrived, std::vector<v1::Copy> copies);
  absl::Status PostFetches(size_t source, uint32_t round, const std::vector<v1::Copy>& copies);

  // Fills one window of a round, on a thread of `fetch_queue_`.
  absl::Status Fetch(size_t source, uint32_t round, const CopyWindow& part);
  // Waits until the window may be taken; false if the load has ended.
  bool AwaitRoom(uint64_t bytes);
  absl::StatusOr<Window> FillWindow(size_t source, uint32_t round, const CopyWindow& part);
  // Returns whether that was the last of its round.
  bool HandOutFilled(size_t source, uint32_t round, const CopyWindow& part, Window window);
  void Discard(Window window);

  // Takes a batch back; adds its source if that is to be told.
  void TakeBack(uint64_t batch, std::vector<size_t>& sources) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void SendReleases(const std::vector<size_t>& sources);
  // Answers the call that waits, if there is anything to tell.
  void Answer();
  void Fail(const absl::Status& error);
  // Returns false if the load had ended before.
  bool End(const absl::Status& why);

  const std::shared_ptr<ByteServer> own_;
  BufferPool& pool_;
  const LoadConsumerOptions options_;

  Mutex mutex_;
  CondVar changed_;
  ConsumerLedger ledger_ ABSL_GUARDED_BY(mutex_);
  std::vector<Source> sources_;                                 // as the ledger numbers them; do not change
  std::map<uint64_t, Window> windows_ ABSL_GUARDED_BY(mutex_);  // by batch
  absl::Status ended_ ABSL_GUARDED_BY(mutex_);                  // why nothing more happens; OK while the load goes on
  Done waiting_ ABSL_GUARDED_BY(mutex_);                        // null if nobody waits
  bool answering_ ABSL_GUARDED_BY(mutex_) = false;              // it is not known yet whether an answer was got
  bool mapped_used_ ABSL_GUARDED_BY(mutex_) = false;
  bool fetched_used_ ABSL_GUARDED_BY(mutex_) = false;
  bool nccl_used_ ABSL_GUARDED_BY(mutex_) = false;
  bool held_ ABSL_GUARDED_BY(mutex_) = false;
  std::string nccl_refusal_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<TaskQueue> fetch_queue_;  // null if nothing is fetched
};

}  // namespace cairn

#endif  // CAIRN_AGENT_TRANSPORT_LOAD_CONSUMER_H_

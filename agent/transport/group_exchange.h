// One rank's part of an exchange over NCCL: what its consumer takes from ranks with which it shares no memory, and what
// those ranks take from it.
#ifndef CAIRN_AGENT_TRANSPORT_GROUP_EXCHANGE_H_
#define CAIRN_AGENT_TRANSPORT_GROUP_EXCHANGE_H_

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "agent/gpu/exchange_schedule.h"
#include "agent/gpu/group_keeper.h"
#include "agent/reader/buffer_pool.h"
#include "agent/reader/round_byte_server.h"
#include "agent/session/peer_book.h"
#include "agent/transport/exchange_source.h"
#include "agent/transport/load_consumer.h"
#include "agent/transport/offer_sender.h"
#include "agent/transport/round_pace.h"
#include "agent/transport/window_offers.h"
#include "agent/transport/worker_memory.h"
#include "common/base/mutex.h"

namespace cairn {

struct GroupExchangeOptions {
  uint32_t rank = 0;
  uint64_t load = 0;  // its number, for the log
  // All windows of the exchange together take about twice this.
  uint64_t round_bytes = 0;
  OfferSenderOptions sender;
  PeerMap peers;  // the other ranks of the group
  // A step that has not ended after this time is given up, and its peers are named.
  absl::Duration stall_timeout = absl::Seconds(5);
  // An exchange that ends may keep the worker for so long.
  absl::Duration turn_timeout = absl::Seconds(10);
  // For the trainer, which copies out of what was received.
  std::function<absl::StatusOr<uint64_t>(std::shared_ptr<SharedMemory>)> offer;
  std::function<void(uint64_t)> withdraw;
  // The group cannot be used any more.
  std::function<void(const absl::Status&)> on_break;
  // The load has failed. Called at most once, from the exchange's thread, without a lock.
  std::function<void(const absl::Status&)> on_error;
};

// Thread-safe. Memory: two windows of what is received, one of what is packed to be sent.
class GroupExchange {
 public:
  // `lender`: what this rank lends, round by round; the other ranks tell `offers` what they take of it.
  // `pace`: how this rank waits for the others before each round. Null if every rank lends memory that stands already.
  GroupExchange(std::shared_ptr<GroupWorker> group, std::shared_ptr<LoadConsumer> consumer,
                std::shared_ptr<ByteServer> lender, std::shared_ptr<WindowOffers> offers,
                std::unique_ptr<RoundPace> pace, BufferPool& pool, GroupExchangeOptions options);
  // Stops.
  ~GroupExchange();

  // RESOURCE_EXHAUSTED (MEMORY_LIMIT): the system gives no thread; then nothing was begun.
  absl::Status Start();
  // Waits for what is about to end; gives up the rest, which breaks the group. The consumer must have been stopped, so
  // that no window waits for its trainer. Idempotent; for one thread at a time.
  void Stop();

 private:
  // Receives the bytes of one step. The trainer copies out of it while the next step is received elsewhere.
  struct Slot {
    std::shared_ptr<SharedMemory> memory;
    uint64_t id = 0;
    uint64_t number = 0;    // by which the worker knows it
    size_t unreleased = 0;  // batches; guarded by mutex_
  };
  struct Send {
    OfferedCopies window;
    uint32_t consumer = 0;  // of a broadcast, one of them
  };

  void Run();
  absl::Status Exchange();
  // Decides what this rank takes, and in which windows.
  absl::Status TakeWindows();
  // Gives the worker room for what is received, and a source that stands already.
  absl::Status MakeMemory();
  // Tells the others what this rank takes, and hears what they take. A rank that tells has made its memory, which may
  // take long, so then all ranks are ready for the first step.
  absl::Status Agree();
  absl::Status MakePacked(const std::vector<ExchangeRound>& course);
  std::vector<ExchangeTransfer> Receives() const;
  std::vector<ExchangeTransfer> Sends() const;
  absl::Status RunRound(const ExchangeRound& round);
  // Waits until this rank's round stands and all ranks are ready for it: not in NCCL, so without a timeout. The
  // coordinator gives up a load that makes no progress, and names the ranks that wait.
  absl::Status AwaitRound(const ExchangeRound& round);
  absl::Status RunStep(const ExchangeStep& step);
  bool AwaitSlot(Slot& slot);
  absl::Status StepError(const absl::Status& error, const ExchangeStep& step) const;
  uint32_t IndexOf(uint32_t rank) const;

  const std::shared_ptr<GroupWorker> group_;
  const std::shared_ptr<LoadConsumer> consumer_;
  const std::shared_ptr<WindowOffers> offers_;
  const std::unique_ptr<RoundPace> pace_;
  BufferPool& pool_;
  const GroupExchangeOptions options_;
  OfferSender sender_;
  WorkerMemory memory_;
  ExchangeSource source_;

  // Only the exchange's thread uses these.
  std::vector<HeldWindow> receives_;  // those that come by a broadcast are marked
  std::vector<Send> sends_;
  std::vector<uint32_t> consumers_;  // that take of this rank here
  std::array<Slot, 2> slots_;
  size_t steps_ = 0;                // that were taken
  absl::Time prepared_;             // when the memory was there and all ranks had told what they take
  uint32_t reached_ = 0;            // all rounds below have been gone through
  bool failed_in_waiting_ = false;  // while no other rank waited for this one in NCCL

  Mutex mutex_;
  CondVar changed_;
  bool begun_ ABSL_GUARDED_BY(mutex_) = false;
  bool stepping_ ABSL_GUARDED_BY(mutex_) = false;  // others may wait for this rank's bytes in NCCL
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  bool done_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace cairn

#endif  // CAIRN_AGENT_TRANSPORT_GROUP_EXCHANGE_H_

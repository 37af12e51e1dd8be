// One rank's part of an exchange over NCCL: what its consumer takes from ranks with which it shares no memory, and what
// those ranks take from it.
#ifndef CAIRN_AGENT_TRANSPORT_NCCL_GROUP_EXCHANGE_H_
#define CAIRN_AGENT_TRANSPORT_NCCL_GROUP_EXCHANGE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "agent/reader/buffer_pool.h"
#include "agent/reader/round_byte_server.h"
#include "agent/session/peer_book.h"
#include "agent/staging/memory_offers.h"
#include "agent/transport/load_consumer.h"
#include "agent/transport/nccl/exchange_memory.h"
#include "agent/transport/nccl/exchange_source.h"
#include "agent/transport/nccl/offer_sender.h"
#include "agent/transport/nccl/round_pace.h"
#include "agent/transport/nccl/step_pipe.h"
#include "agent/transport/window_offers.h"
#include "common/base/mutex.h"
#include "gpu/nccl/exchange_schedule.h"
#include "gpu/nccl/group_keeper.h"

namespace cairn {

struct GroupExchangeOptions {
  uint32_t rank = 0;
  uint64_t load = 0;  // its number, for the log
  // All windows of the exchange together take about twice this.
  uint64_t round_bytes = 0;
  OfferSenderOptions sender;
  PeerMap peers;  // the other ranks of the group
  // A step of the exchange that has not ended after this time is given up, and its peers are named. The time counts
  // from the end of the step before it.
  absl::Duration stall_timeout = absl::Seconds(5);
  // An exchange that ends may keep the worker for so long.
  absl::Duration turn_timeout = absl::Seconds(10);
  // For all memory that the exchange makes, see MemoryOf; null if none was kept.
  std::shared_ptr<BufferPool::Room> room;
  MemoryOffers offers;  // for the windows of what is received
  // What is known before the exchange begins, so that memory can be prepared: how many bytes at most this rank takes
  // over NCCL, whether ranks pack what they send, and the memory that this rank lends, if it stands already.
  uint64_t expected_bytes = 0;
  bool expects_packed = false;
  std::weak_ptr<SharedMemory> source;
  // The group cannot be used any more.
  std::function<void(const absl::Status&)> on_break;
  // The load has failed. Called at most once, from the exchange's thread, without a lock.
  std::function<void(const absl::Status&)> on_error;
};

// Thread-safe. Memory: two windows of what is received, two of what is packed to be sent.
//
// It may be started before it is known whether the bytes go over NCCL. It then prepares memory, while the trainers
// stage what they lend: pages that are made, mapped and registered at the exchange's beginning cost as much time as
// their bytes take on a fast network.
class GroupExchange {
 public:
  // `lender`: what this rank lends, round by round; the other ranks tell `offers` what they take of it.
  // `pace`: how this rank waits for the others before each round. Null if every rank lends memory that stands already.
  GroupExchange(std::shared_ptr<GroupWorker> group, std::shared_ptr<LoadConsumer> consumer,
                std::shared_ptr<ByteServer> lender, std::shared_ptr<WindowOffers> offers,
                std::unique_ptr<RoundPace> pace, BufferPool& pool, GroupExchangeOptions options);
  // Stops, and waits.
  ~GroupExchange();

  // Returns how much memory an exchange makes at most, in bytes, if this rank takes `taken` bytes of `peers` other
  // ranks, and each of them takes at most `lent` bytes of this one in a round.
  static uint64_t MemoryOf(uint64_t peers, uint64_t round_bytes, uint64_t taken, uint64_t lent);

  // Begins to prepare memory. RESOURCE_EXHAUSTED (MEMORY_LIMIT): the system gives no thread; then nothing was begun.
  absl::Status Start();
  // Exchanges. Start must have come before. Idempotent.
  void Go();
  // After Go: waits for what is about to end; gives up the rest, which breaks the group. The consumer must have been
  // stopped, so that no window waits for its trainer. Without Go: lets the worker give back what was prepared, and does
  // not wait. Idempotent; for one thread at a time.
  void Stop();
  // Returns whether the destructor would not wait.
  bool ended();
  uint64_t group() const { return group_->number; }

 private:
  struct Send {
    OfferedCopies window;
    uint32_t consumer = 0;  // of a broadcast, one of them
  };

  void Run();
  // If nobody uses the worker. If that fails, the group is broken. Where memory is short only, the exchange tells it.
  absl::Status PrepareMemory();
  absl::Status MakeMemoryAhead();
  void GiveBackMemory();
  void RunExchange(const absl::Status& prepared);
  absl::Status Exchange();
  absl::Status Busy() const;
  // Decides what this rank takes, and in which windows.
  absl::Status TakeWindows();
  // No step takes more.
  uint64_t StepBytes() const;
  static uint64_t StepBytes(uint64_t peers, uint64_t round_bytes);
  // Gives the worker room for what is received, and a source that stands already.
  absl::Status MakeMemory();
  // Tells the others what this rank takes, and hears what they take. A rank that tells has made its memory, which may
  // take long, so then all ranks are ready for the first step.
  absl::Status Agree();
  absl::Status MakePacked();
  std::vector<ExchangeTransfer> Receives() const;
  std::vector<ExchangeTransfer> Sends() const;
  absl::Status RunRound(const ExchangeRound& round);
  // Waits until this rank's round stands and all ranks are ready for it: not in NCCL, so without a timeout. The
  // coordinator gives up a load that makes no progress, and names the ranks that wait.
  absl::Status AwaitRound(const ExchangeRound& round);
  // Packs what a step sends, and gives it to the worker as soon as there is room for what it receives.
  absl::Status BeginStep(const ExchangeStep& step);
  // Names the receives of a step by their numbers, and where they come in a slot.
  using Arriving = std::vector<std::pair<size_t, uint64_t>>;
  worker::Step MakeStep(const ExchangeStep& step, size_t place, Arriving& arriving);
  void HandOut(size_t place, const Arriving& arriving);
  absl::Status StepError(const absl::Status& error, const ExchangeStep& step) const;

  const std::shared_ptr<GroupWorker> group_;
  const std::shared_ptr<LoadConsumer> consumer_;
  const std::shared_ptr<WindowOffers> offers_;
  const std::unique_ptr<RoundPace> pace_;
  const GroupExchangeOptions options_;
  OfferSender sender_;
  ExchangeMemory memory_;
  ExchangeSource source_;

  // Only the exchange's thread uses these.
  std::vector<HeldWindow> receives_;  // those that come by a broadcast are marked
  std::vector<Send> sends_;
  std::vector<uint32_t> consumers_;  // that take of this rank here
  std::vector<ExchangeRound> course_;
  size_t steps_ = 0;                // that were taken
  absl::Time prepared_;             // when the memory was there and all ranks had told what they take
  uint32_t reached_ = 0;            // all rounds below have been gone through
  bool failed_in_waiting_ = false;  // while no other rank waited for this one in NCCL

  Mutex mutex_;
  CondVar changed_;
  bool going_ ABSL_GUARDED_BY(mutex_) = false;
  bool stepping_ ABSL_GUARDED_BY(mutex_) = false;  // others may wait for this rank's bytes in NCCL
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  bool done_ ABSL_GUARDED_BY(mutex_) = false;
  StepPipe pipe_;
  std::thread thread_;
};

}  // namespace cairn

#endif  // CAIRN_AGENT_TRANSPORT_NCCL_GROUP_EXCHANGE_H_

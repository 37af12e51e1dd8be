// How the bytes of one load or reshard go over NCCL, if they do: what other agents may use of this one, and the
// exchange itself.
#ifndef CAIRN_AGENT_EXECUTION_LOAD_EXCHANGE_H_
#define CAIRN_AGENT_EXECUTION_LOAD_EXCHANGE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "agent/execution/executor_context.h"
#include "agent/reader/buffer_pool.h"
#include "agent/reader/round_byte_server.h"
#include "agent/transport/load_consumer.h"
#include "agent/transport/nccl/group_exchange.h"
#include "agent/transport/nccl/round_gate.h"
#include "agent/transport/nccl/round_pace.h"
#include "agent/transport/window_offers.h"
#include "common/base/mutex.h"

namespace cairn {

// Thread-safe. Whether the bytes go over NCCL is decided after it was made, and never for some loads.
class LoadExchange {
 public:
  // What an exchange needs of its load.
  struct Load {
    uint64_t number = 0;
    std::shared_ptr<LoadConsumer> consumer;
    std::shared_ptr<ByteServer> lender;
    std::shared_ptr<SharedMemory> source;    // of a reshard: what this rank lends; null for a load
    std::shared_ptr<BufferPool::Room> room;  // for the exchange's memory; null if there was none
    std::function<void(const absl::Status&)> on_error;
  };

  // Keeps room in the budget for what the exchange of a load will make, so that the load does not fail for want of it
  // when its bytes are to go over NCCL. To be called before the load makes other memory.
  // RESOURCE_EXHAUSTED (MEMORY_LIMIT): there is no room. The bytes of all ranks then go over the host transport.
  static absl::StatusOr<std::shared_ptr<BufferPool::Room>> Reserve(const ExecutorContext& context,
                                                                   const action::StartRead& order);
  // `context` outlives it.
  LoadExchange(const ExecutorContext& context, const action::StartRead& order, Load load);
  // Waits until it has ended. Stop must have come before.
  ~LoadExchange() = default;

  // Other ranks tell these what they take of this rank.
  const std::shared_ptr<WindowOffers>& offers() const { return offers_; }
  // Lets other ranks use this rank's gate, in case that it keeps the gate of all.
  void Serve();
  void StopServing();

  // Lets memory be prepared, if there is a group and nothing is decided, while others stage or read; and if the budget
  // has room for the windows of the host transport beside it, because both are there for a moment if the bytes go that
  // way. What goes wrong shows when the exchange is to begin.
  void Prepare();
  // It is decided that the bytes go over NCCL. The load has failed if it returns an error.
  absl::Status Begin(uint64_t group);
  // It is decided that they go over the host transport.
  void GoByHost();
  // The load has ended, as `why` says to those who ask for its gate. Its consumer was stopped before.
  void Stop(const absl::Status& why);
  // Returns whether the destructor would not wait: a worker may have to give memory back that was prepared in vain.
  bool ended();

 private:
  absl::StatusOr<std::shared_ptr<GroupExchange>> Make(std::shared_ptr<GroupWorker> group);
  // Returns how this rank goes through the rounds of a load with the others; the first of `ranks` keeps the gate.
  absl::StatusOr<std::unique_ptr<RoundPace>> MakePace(const std::vector<uint32_t>& ranks);
  void Drop() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const ExecutorContext& context_;
  const uint64_t number_;
  const std::shared_ptr<LoadConsumer> consumer_;
  const std::shared_ptr<ByteServer> lender_;
  const std::weak_ptr<SharedMemory> source_;
  const std::function<void(const absl::Status&)> on_error_;
  const OfferSenderOptions sender_;
  const PeerMap peers_;  // all other ranks
  // Bytes of other ranks that this rank takes, and whether some of them must be packed.
  const uint64_t taken_bytes_;
  bool taken_packed_ = false;
  std::shared_ptr<WindowOffers> offers_;
  // Null for a reshard.
  std::shared_ptr<RoundGate> gate_;
  TransferService::Key gate_key_;

  Mutex mutex_;
  std::shared_ptr<BufferPool::Room> room_ ABSL_GUARDED_BY(mutex_);
  bool decided_ ABSL_GUARDED_BY(mutex_) = false;
  std::shared_ptr<GroupExchange> exchange_ ABSL_GUARDED_BY(mutex_);
  // They were prepared in vain.
  std::vector<std::shared_ptr<GroupExchange>> dropped_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cairn

#endif  // CAIRN_AGENT_EXECUTION_LOAD_EXCHANGE_H_

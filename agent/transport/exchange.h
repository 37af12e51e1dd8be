// How the bytes of an operation move between ranks that share no memory. HostExchange is one way; an implementation
// that knows another one uses it where the coordinator decides so, and the host transport else.
#ifndef CAIRN_AGENT_TRANSPORT_EXCHANGE_H_
#define CAIRN_AGENT_TRANSPORT_EXCHANGE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "agent/reader/round_byte_server.h"
#include "agent/session/action.h"
#include "agent/staging/shared_memory.h"
#include "agent/transport/load_consumer.h"
#include "agent/transport/shard_source.h"
#include "agent/transport/transfer_context.h"
#include "agent/transport/window_offers.h"
#include "cairn/v1/agent_coordination_service.pb.h"

namespace cairn {

// The part of one load or reshard that may go another way than over the host transport. The coordinator decides that
// after it was made, and never for some loads. Thread-safe.
class LoadExchange {
 public:
  // What it needs of its load.
  struct Load {
    uint64_t number = 0;
    std::shared_ptr<LoadConsumer> consumer;
    std::shared_ptr<ByteServer> lender;
    std::shared_ptr<SharedMemory> source;  // of a reshard: what this rank lends; null for a load
    std::function<void(const absl::Status&)> on_error;
  };

  // Waits until it has ended. Stop must have come before, if Serve has.
  virtual ~LoadExchange() = default;

  // Lets other ranks use what this rank has for them. To be called once, before all that follows.
  virtual void Serve(Load load) = 0;
  virtual void StopServing() = 0;
  // Other ranks tell these what they take of this rank. Not null after Serve.
  virtual const std::shared_ptr<WindowOffers>& offers() const = 0;

  // Lets memory be prepared while others stage or read, if that is of use now. What goes wrong shows when the exchange
  // is to begin.
  virtual void Prepare() = 0;
  // It is decided that the bytes go over this group. The load has failed if it returns an error.
  virtual absl::Status Begin(uint64_t group) = 0;
  // It is decided that they go over the host transport.
  virtual void GoByHost() = 0;
  // The load has ended, as `why` says to other ranks that ask. Its consumer was stopped before.
  virtual void Stop(const absl::Status& why) = 0;
  // Returns whether the destructor would not wait.
  virtual bool ended() = 0;
};

// Thread-safe.
class Exchange {
 public:
  virtual ~Exchange() = default;

  // Begins, for the agent of `context`. `on_change` is called from a thread of the exchange, without a lock, when what
  // the coordinator is told of groups has changed. Returns what it is told of this rank at its registration. To be
  // called once, before all that follows. May block for some seconds.
  virtual v1::NcclSupport Start(const TransferContext& context,
                                std::function<void(std::vector<v1::GroupState>)> on_change) = 0;
  // Takes all of the coordinator's orders about groups. Does not wait.
  virtual void Follow(const std::vector<v1::GroupOrder>& orders) = 0;
  // Makes the part of a load whose way is not decided, and keeps room in the budget for its memory, so that the load
  // does not fail for want of it; so it is called before the load makes other memory.
  // RESOURCE_EXHAUSTED (MEMORY_LIMIT): there is no room. UNAVAILABLE (TRANSPORT_FAILED): this rank knows no other way.
  // The bytes of all ranks then go over the host transport.
  virtual absl::StatusOr<std::shared_ptr<LoadExchange>> OfLoad(const action::StartRead& order) = 0;
  // Makes the source of the shards that move in one attempt of a save; not null. The trainer has staged into `slab`.
  virtual std::unique_ptr<ShardSource> OfSave(const action::StartWrite& order, std::shared_ptr<SharedMemory> slab) = 0;
  // Ends what groups need, and waits. Idempotent.
  virtual void Stop() = 0;
};

}  // namespace cairn

#endif  // CAIRN_AGENT_TRANSPORT_EXCHANGE_H_

// How the bytes of one load or reshard go over NCCL, if they do: what other agents may use of this one, and the
// exchange itself.
#ifndef CAIRN_AGENT_TRANSPORT_NCCL_NCCL_LOAD_H_
#define CAIRN_AGENT_TRANSPORT_NCCL_NCCL_LOAD_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "agent/reader/buffer_pool.h"
#include "agent/session/action.h"
#include "agent/transport/exchange.h"
#include "agent/transport/nccl/exchange_gate.h"
#include "agent/transport/nccl/group_exchange.h"
#include "agent/transport/transfer_context.h"
#include "agent/transport/window_offers.h"
#include "common/base/mutex.h"
#include "gpu/nccl/group_keeper.h"

namespace cairn {

class NcclLoad final : public LoadExchange {
 public:
  // Keeps room for the exchange's memory. RESOURCE_EXHAUSTED (MEMORY_LIMIT): there is none. `context` and `groups`
  // outlive it.
  static absl::StatusOr<std::shared_ptr<NcclLoad>> Make(const TransferContext& context, GroupKeeper& groups,
                                                        const action::StartRead& order);

  void Serve(Load load) override;
  void StopServing() override;
  const std::shared_ptr<WindowOffers>& offers() const override { return offers_; }
  // Prepares if there is a group and nothing is decided; and if the budget has room for the windows of the host
  // transport beside it, because both are there for a moment if the bytes go that way.
  void Prepare() override;
  absl::Status Begin(uint64_t group) override;
  void GoByHost() override;
  void Stop(const absl::Status& why) override;
  // A worker may have to give memory back that was prepared in vain.
  bool ended() override;

 private:
  NcclLoad(const TransferContext& context, GroupKeeper& groups, const action::StartRead& order,
           std::shared_ptr<BufferPool::Room> room);
  absl::StatusOr<std::shared_ptr<GroupExchange>> MakeExchange(std::shared_ptr<GroupWorker> group);
  void Drop() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const TransferContext& context_;
  GroupKeeper& groups_;
  const OfferSenderOptions sender_;
  const PeerMap peers_;  // all other ranks
  // Bytes of other ranks that this rank takes, and whether some of them must be packed.
  const uint64_t taken_bytes_;
  bool taken_packed_ = false;
  Load load_;  // without its source, which must be free to end
  std::weak_ptr<SharedMemory> source_;
  std::shared_ptr<WindowOffers> offers_;
  // This rank goes by it through the rounds of a load with the others. There is none for a reshard.
  std::optional<ExchangeGate> gate_;

  Mutex mutex_;
  std::shared_ptr<BufferPool::Room> room_ ABSL_GUARDED_BY(mutex_);
  bool decided_ ABSL_GUARDED_BY(mutex_) = false;
  std::shared_ptr<GroupExchange> exchange_ ABSL_GUARDED_BY(mutex_);
  // They were prepared in vain.
  std::vector<std::shared_ptr<GroupExchange>> dropped_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cairn

#endif  // CAIRN_AGENT_TRANSPORT_NCCL_NCCL_LOAD_H_

// The exchange of an agent whose bytes may go over NCCL between GPUs.
#ifndef CAIRN_AGENT_TRANSPORT_NCCL_NCCL_EXCHANGE_H_
#define CAIRN_AGENT_TRANSPORT_NCCL_NCCL_EXCHANGE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "agent/transport/host_exchange.h"
#include "gpu/nccl/group_keeper.h"
#include "gpu/share/worker_process.h"

namespace cairn {

struct NcclExchangeOptions {
  v1::NcclSupport policies;  // what people allow
  uint32_t device = 0;       // that cairn-gpu-worker uses
  WorkerProcessOptions worker;
};

// Start asks a worker whether the machine has what NCCL needs. If it does not, all goes over the host transport.
class NcclExchange final : public HostExchange {
 public:
  explicit NcclExchange(NcclExchangeOptions options) : HostExchange(options.policies), options_(std::move(options)) {}

  v1::NcclSupport Start(const TransferContext& context,
                        std::function<void(std::vector<v1::GroupState>)> on_change) override;
  void Follow(const std::vector<v1::GroupOrder>& orders) override;
  absl::StatusOr<std::shared_ptr<LoadExchange>> OfLoad(const action::StartRead& order) override;
  std::unique_ptr<ShardSource> OfSave(const action::StartWrite& order, std::shared_ptr<SharedMemory> slab) override;
  void Stop() override;

 private:
  const NcclExchangeOptions options_;
  std::unique_ptr<GroupKeeper> groups_;  // null where NCCL is not found
};

}  // namespace cairn

#endif  // CAIRN_AGENT_TRANSPORT_NCCL_NCCL_EXCHANGE_H_

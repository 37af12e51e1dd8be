#include "agent/transport/nccl/nccl_exchange.h"

#include "absl/time/time.h"
#include "agent/transport/nccl/nccl_load.h"
#include "agent/transport/nccl/nccl_shards.h"
#include "gpu/nccl/nccl_probe.h"

namespace cairn {
namespace {

// How long libraries of CUDA and NCCL may take to open at the agent's start.
constexpr absl::Duration kProbeTimeout = absl::Seconds(10);

}  // namespace

v1::NcclSupport NcclExchange::Start(const TransferContext& context,
                                    std::function<void(std::vector<v1::GroupState>)> on_change) {
  v1::NcclSupport support = HostExchange::Start(context, nullptr);
  ProbeNccl(options_.worker, options_.device, kProbeTimeout, support);
  if (support.version() == 0) return support;
  groups_ = std::make_unique<GroupKeeper>(GroupKeeperOptions{
      .rank = context.rank, .device = options_.device, .worker = options_.worker, .on_change = std::move(on_change)});
  return support;
}

void NcclExchange::Follow(const std::vector<v1::GroupOrder>& orders) {
  if (groups_ != nullptr) groups_->Follow(orders);
}

absl::StatusOr<std::shared_ptr<LoadExchange>> NcclExchange::OfLoad(const action::StartRead& order) {
  if (groups_ == nullptr) return HostExchange::OfLoad(order);
  return NcclLoad::Make(context(), *groups_, order);
}

std::unique_ptr<ShardSource> NcclExchange::OfSave(const action::StartWrite& order, std::shared_ptr<SharedMemory> slab) {
  std::unique_ptr<ShardSource> host = HostExchange::OfSave(order, slab);
  if (groups_ == nullptr || !order.order.has_exchange()) return host;
  return MakeNcclShards(context(), *groups_, order, std::move(slab), std::move(host));
}

void NcclExchange::Stop() {
  if (groups_ != nullptr) groups_->Stop();
}

}  // namespace cairn

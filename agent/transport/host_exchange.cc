#include "agent/transport/host_exchange.h"

#include "agent/transport/shard_fetcher.h"
#include "common/status/reason.h"

namespace cairn {

v1::NcclSupport HostExchange::Start(const TransferContext& context, std::function<void(std::vector<v1::GroupState>)>) {
  context_ = &context;
  return told_;
}

absl::StatusOr<std::shared_ptr<LoadExchange>> HostExchange::OfLoad(const action::StartRead&) {
  return MakeError(Reason::kTransportFailed, "this rank has no part in NCCL");
}

std::unique_ptr<ShardSource> HostExchange::OfSave(const action::StartWrite& order, std::shared_ptr<SharedMemory>) {
  return std::make_unique<ShardFetcher>(order.target, order.order, order.peers,
                                        ShardFetcherOptions{.job = context_->job,
                                                            .rank = context_->rank,
                                                            .boot_id = context_->boot_id,
                                                            .tokens = context_->tokens,
                                                            .shared_memory = context_->shared_memory});
}

}  // namespace cairn

// The exchange of an agent that moves bytes over the host transport alone.
#ifndef CAIRN_AGENT_TRANSPORT_HOST_EXCHANGE_H_
#define CAIRN_AGENT_TRANSPORT_HOST_EXCHANGE_H_

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "agent/transport/exchange.h"

namespace cairn {

class HostExchange : public Exchange {
 public:
  // `told`: the coordinator hears this of the rank. It says why nothing goes another way.
  explicit HostExchange(v1::NcclSupport told = {}) : told_(std::move(told)) {}

  v1::NcclSupport Start(const TransferContext& context,
                        std::function<void(std::vector<v1::GroupState>)> on_change) override;
  void Follow(const std::vector<v1::GroupOrder>&) override {}
  absl::StatusOr<std::shared_ptr<LoadExchange>> OfLoad(const action::StartRead& order) override;
  std::unique_ptr<ShardSource> OfSave(const action::StartWrite& order, std::shared_ptr<SharedMemory> slab) override;
  void Stop() override {}

 protected:
  const TransferContext& context() const { return *context_; }

 private:
  v1::NcclSupport told_;
  const TransferContext* context_ = nullptr;
};

}  // namespace cairn

#endif  // CAIRN_AGENT_TRANSPORT_HOST_EXCHANGE_H_

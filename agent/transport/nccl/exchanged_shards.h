// Gets the shards that other ranks hold for the writer of a save: over NCCL as long as that works, else over the host
// transport.
#ifndef CAIRN_AGENT_TRANSPORT_NCCL_EXCHANGED_SHARDS_H_
#define CAIRN_AGENT_TRANSPORT_NCCL_EXCHANGED_SHARDS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "agent/transport/nccl/moved_exchange.h"
#include "agent/transport/shard_source.h"
#include "cairn/v1/agent_coordination_service.pb.h"
#include "common/base/mutex.h"

namespace cairn {

struct ExchangedShardsOptions {
  int64_t step = 0;  // for the log
  // Says by index of SaveImage::moved_in whether the shard comes by the exchange. The others come over the host
  // transport.
  std::vector<bool> exchanged;
  // These ranks hold the shards that come by the exchange. They ascend.
  std::vector<uint32_t> sources;
  // Makes this rank's part in the exchange of a group, whose number is given.
  std::function<absl::StatusOr<std::shared_ptr<MovedExchange>>(uint64_t group)> make;
  // Is told that the exchange cannot use that group.
  std::function<void(uint64_t group, const absl::Status& why)> give_up;
};

// Shards wait until it is decided how they go. What an exchange has not brought when it fails comes over the host
// transport, and transport() says why, unless NCCL is required: then its error is that of the shards. A rank that only
// sends has one of these too. Thread-safe.
class ExchangedShards final : public ShardSource {
 public:
  // `host` is not null.
  ExchangedShards(std::unique_ptr<ShardSource> host, ExchangedShardsOptions options);
  // Stops, and waits until no worker uses the slab.
  ~ExchangedShards() override;

  void Decide(const v1::Exchange& exchange) override;
  absl::Status Fetch(size_t index, uint64_t offset, uint64_t bytes, char* to) override;
  void AwaitEnd() override;
  void Stop() override;
  std::vector<uint32_t> waiting_for() override;
  std::string transport() override;

 private:
  void BeginExchange(uint64_t group);
  // Returns when it is decided how shards go. Null means that they go over the host transport.
  absl::StatusOr<std::shared_ptr<MovedExchange>> AwaitDecision();
  absl::Status Stopped() const;
  // Lets what is not there yet come over the host transport, for this reason.
  void GoByHost(const std::string& reason);
  // Whether what did not come over NCCL may come over the host transport; if not, its error. `failure`: of the
  // exchange.
  absl::Status CheckAllowed(const absl::Status& failure);

  const std::unique_ptr<ShardSource> host_;
  const ExchangedShardsOptions options_;

  Mutex mutex_;
  CondVar changed_;
  bool required_ ABSL_GUARDED_BY(mutex_) = false;
  bool making_ ABSL_GUARDED_BY(mutex_) = false;  // the exchange
  std::shared_ptr<MovedExchange> exchange_ ABSL_GUARDED_BY(mutex_);
  bool by_host_ ABSL_GUARDED_BY(mutex_) = false;  // what the exchange has not brought
  std::string refusal_ ABSL_GUARDED_BY(mutex_);   // why not over NCCL
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace cairn

#endif  // CAIRN_AGENT_TRANSPORT_NCCL_EXCHANGED_SHARDS_H_

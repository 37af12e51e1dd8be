// TransferService: lends this agent's rounds to the agents of other ranks.
#ifndef CAIRN_AGENT_TRANSPORT_TRANSFER_SERVICE_H_
#define CAIRN_AGENT_TRANSPORT_TRANSFER_SERVICE_H_

#include <compare>
#include <map>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "agent/reader/round_byte_server.h"
#include "agent/transport/window_offers.h"
#include "cairn/v1/transfer_service.grpc.pb.h"
#include "common/base/mutex.h"

namespace cairn {

struct TransferServiceOptions {
  std::string job;
  uint32_t rank = 0;
  uint64_t incarnation = 0;
};

// Thread-safe.
class TransferService final : public v1::TransferService::CallbackService {
 public:
  explicit TransferService(TransferServiceOptions options) : options_(std::move(options)) {}

  // Says which load, or attempt of a save.
  struct Key {
    std::string plan_digest;
    uint64_t load_number = 0;
    int64_t step = 0;
    uint32_t attempt = 0;
    // Ranks number their loads each for itself; what a load's ranks share is its token.
    static Key OfLoad(const std::string& plan_digest, const std::string& token);
    auto operator<=>(const Key&) const = default;
  };

  // Serves it from now on; to whoever has its token. `offers` is null if the bytes never go over NCCL.
  void Add(const Key& key, std::string token, std::shared_ptr<ByteServer> lender,
           std::shared_ptr<WindowOffers> offers = nullptr);
  void Remove(const Key& key);

  grpc::ServerUnaryReactor* AwaitRound(grpc::CallbackServerContext* context, const v1::AwaitRoundRequest* request,
                                       v1::AwaitRoundResponse* response) override;
  grpc::ServerWriteReactor<v1::FetchCopiesResponse>* FetchCopies(grpc::CallbackServerContext* context,
                                                                 const v1::FetchCopiesRequest* request) override;
  grpc::ServerUnaryReactor* OfferWindows(grpc::CallbackServerContext* context, const v1::OfferWindowsRequest* request,
                                         v1::OfferWindowsResponse* response) override;

 private:
  struct Served {
    std::string token;
    std::shared_ptr<ByteServer> lender;
    std::shared_ptr<WindowOffers> offers;
  };

  // Returns what a call may use.
  absl::StatusOr<Served> ServedFor(const v1::TransferIdentity& transfer);

  const TransferServiceOptions options_;
  Mutex mutex_;
  std::map<Key, Served> served_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cairn

#endif  // CAIRN_AGENT_TRANSPORT_TRANSFER_SERVICE_H_

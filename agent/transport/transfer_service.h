// TransferService: lends this agent's rounds to the agents of other ranks.
#ifndef CAIRN_AGENT_TRANSPORT_TRANSFER_SERVICE_H_
#define CAIRN_AGENT_TRANSPORT_TRANSFER_SERVICE_H_

#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "agent/reader/round_source.h"
#include "cairn/v1/transfer_service.grpc.pb.h"
#include "common/base/mutex.h"

namespace cairn {

struct TransferServiceOptions {
  std::string job;
  uint32_t rank = 0;
  uint64_t incarnation = 0;
  // Asked of every call; empty for none. Besides it every load has a token of its own.
  std::string token;
};

// Thread-safe.
class TransferService final : public v1::TransferService::CallbackService {
 public:
  explicit TransferService(TransferServiceOptions options) : options_(std::move(options)) {}

  // Serves a load from now on; to whoever has its token.
  void Add(const std::string& plan_digest, uint64_t number, std::string token, std::shared_ptr<RoundSource> source);
  void Remove(const std::string& plan_digest, uint64_t number);

  grpc::ServerUnaryReactor* AwaitRound(grpc::CallbackServerContext* context, const v1::AwaitRoundRequest* request,
                                       v1::AwaitRoundResponse* response) override;
  grpc::ServerWriteReactor<v1::FetchCopiesResponse>* FetchCopies(grpc::CallbackServerContext* context,
                                                                 const v1::FetchCopiesRequest* request) override;

 private:
  struct Served {
    std::string token;
    std::shared_ptr<RoundSource> source;
  };

  // The load that a call may take from.
  absl::StatusOr<std::shared_ptr<RoundSource>> SourceFor(const grpc::CallbackServerContext& context,
                                                         const v1::TransferIdentity& transfer);

  const TransferServiceOptions options_;
  Mutex mutex_;
  std::map<std::pair<std::string, uint64_t>, Served> served_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cairn

#endif  // CAIRN_AGENT_TRANSPORT_TRANSFER_SERVICE_H_

// Rounds of a load over the host transport: gRPC between the agents' machines.
#ifndef CAIRN_AGENT_TRANSPORT_HOST_ROUND_FETCHER_H_
#define CAIRN_AGENT_TRANSPORT_HOST_ROUND_FETCHER_H_

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "agent/transport/copy_stream.h"
#include "agent/transport/round_fetcher.h"
#include "agent/transport/transfer_identity.h"
#include "cairn/v1/agent_coordination_service.pb.h"
#include "cairn/v1/transfer_service.grpc.pb.h"
#include "common/base/mutex.h"
#include "common/rpc/peer_channel.h"

namespace cairn {

struct HostRoundFetcherOptions {
  LoadTransfer load;
  // A source that cannot be reached for so long is given up.
  absl::Duration unreachable_timeout = absl::Seconds(15);
};

class HostRoundFetcher final : public RoundFetcher {
 public:
  HostRoundFetcher(const v1::TransferPeer& source, const HostRoundFetcherOptions& options);
  ~HostRoundFetcher() override;

  void Await(uint32_t round, uint32_t released_below, Done done) override;
  void Release(uint32_t released_below, Failed failed) override;
  absl::Status Fetch(uint32_t round, std::span<const v1::Copy> copies, char* to, uint64_t bytes) override;
  void Cancel() override;
  void Stop() override;

 private:
  struct Call;

  void NoteRelease(uint32_t released_below);
  // Adds a call and starts it, unless all is cancelled.
  void Begin(std::unique_ptr<Call> call);
  void Start(Call& call);
  void OnAnswer(Call& call, const absl::Status& error);
  // Returns how long a call that fails so is tried again; zero for an error that will not pass.
  absl::Duration PatienceWith(const absl::Status& error, const Call& call) const;
  void StartLater(Call& call);
  void End(Call& call);

  v1::FetchCopiesRequest FetchRequest(uint32_t round, std::span<const v1::Copy> copies) const;
  absl::StatusOr<StreamedCopies> Stream(const v1::FetchCopiesRequest& request, char* to, uint64_t bytes);
  // Returns what to say of a stream that failed.
  absl::Status StreamError(const absl::Status& error);
  void AwaitCancel(absl::Duration timeout);

  absl::Status PeerError(const grpc::Status& status) const;
  absl::Status TransportFailed(const std::string& what) const;
  absl::Status ToldByPeer(const absl::Status& error) const;

  const v1::TransferIdentity identity_;
  const absl::Duration unreachable_timeout_;
  const std::shared_ptr<PeerChannel> peer_;

  Mutex mutex_;
  CondVar changed_;
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  uint32_t released_below_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<Call*, std::unique_ptr<Call>> calls_ ABSL_GUARDED_BY(mutex_);  // under way, or waiting to be tried again
  std::set<grpc::ClientContext*> fetches_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cairn

#endif  // CAIRN_AGENT_TRANSPORT_HOST_ROUND_FETCHER_H_

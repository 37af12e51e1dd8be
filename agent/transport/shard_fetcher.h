// Shards that other ranks hold and this one writes, taken from their slabs while the files are written.
#ifndef CAIRN_AGENT_TRANSPORT_SHARD_FETCHER_H_
#define CAIRN_AGENT_TRANSPORT_SHARD_FETCHER_H_

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "agent/session/peer_book.h"
#include "agent/session/save_image.h"
#include "agent/sockets/lent_memory.h"
#include "agent/transport/shard_source.h"
#include "cairn/v1/agent_coordination_service.pb.h"
#include "cairn/v1/transfer_service.grpc.pb.h"
#include "common/base/mutex.h"
#include "common/rpc/peer_channel.h"
#include "common/status/reason.h"

namespace cairn {

struct ShardFetcherOptions {
  std::string job;
  uint32_t rank = 0;
  std::string boot_id;
  std::shared_ptr<TokenSource> tokens;  // null as with --insecure
  bool shared_memory = true;
  // A rank that cannot be reached for so long ends the save.
  absl::Duration unreachable_timeout = absl::Seconds(15);
};

// Takes shards over the host transport. If the source is on the same machine (the boot ids are equal, and its
// descriptor socket answers), its slab is mapped and copied out of. Else the bytes come over gRPC. The way is chosen
// when a source is first needed, and logged; it never changes silently.
class ShardFetcher final : public ShardSource {
 public:
  // `target` says what comes from whom, `peers` where those are; `order` brings the secret.
  ShardFetcher(SaveImagePtr target, const v1::SaveOrder& order, const PeerMap& peers, ShardFetcherOptions options);
  ~ShardFetcher() override;

  void Decide(const v1::Exchange& exchange) override;
  absl::Status Fetch(size_t index, uint64_t offset, uint64_t bytes, char* to) override;
  void Stop() override;
  std::vector<uint32_t> waiting_for() override;
  std::string transport() override;

 private:
  struct Source {
    uint32_t rank = 0;
    v1::TransferPeer peer;
    bool mapped = false;
    bool resolving = false;
    bool waiting = false;  // it has not staged yet, or does not answer
    bool ready = false;
    absl::Status failure;                 // of the one try to resolve it
    std::map<uint32_t, uint64_t> offset;  // by shard number of its layout
    std::shared_ptr<LentMemory> memory;
    std::shared_ptr<PeerChannel> channel;
  };

  // Returns when the source's slab can be read. Other threads that need it wait for the one that resolves it.
  absl::Status Resolve(Source& source);
  // Asks until the source has staged.
  absl::Status AwaitStaged(Source& source);
  // One call; blocks. `answered` is how it ended. The status is of the stop alone.
  absl::Status AskOnce(Source& source, absl::Status& answered, v1::AwaitRoundResponse& response);
  // OK: the error may pass, and the call is worth another try.
  absl::Status CheckPassing(Source& source, const absl::Status& error, absl::Time& failing_since);
  void Pause(absl::Duration pause);
  // Takes over where its shards lie, compared with what the plan says comes from it.
  absl::Status TakeOffsets(Source& source, const v1::AwaitRoundResponse& staged);
  absl::Status MapSlab(Source& source, const v1::AwaitRoundResponse& staged);
  // Copies bytes of a source that is ready.
  absl::Status Copy(const Source& source, uint64_t offset, uint64_t bytes, char* to);
  // These stand around each call, so that Stop cancels it. SAVE_CANCELLED: it was stopped.
  absl::Status BeginCall(grpc::ClientContext& context);
  absl::Status EndCall(grpc::ClientContext& context);
  void MarkWaiting(Source& source);
  v1::TransferIdentity Identity(const Source& source) const;
  absl::Status PeerError(const Source& source, const grpc::Status& status) const;
  absl::Status Stopped() const;
  absl::Status Failed(const Source& source, const std::string& what, Reason reason = Reason::kTransportFailed) const;

  const SaveImagePtr target_;
  const int64_t step_;
  const uint32_t attempt_;
  const std::string transfer_token_;
  const ShardFetcherOptions options_;

  Mutex mutex_;
  CondVar changed_;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  std::map<uint32_t, Source> sources_;  // by rank; the set does not change, and `ready` sources do not either
  std::set<grpc::ClientContext*> calls_ ABSL_GUARDED_BY(mutex_);
  bool mapped_used_ ABSL_GUARDED_BY(mutex_) = false;
  bool fetched_used_ ABSL_GUARDED_BY(mutex_) = false;
  std::string refusal_ ABSL_GUARDED_BY(mutex_);  // why shards go no other way; empty if nobody wanted that
};

}  // namespace cairn

#endif  // CAIRN_AGENT_TRANSPORT_SHARD_FETCHER_H_

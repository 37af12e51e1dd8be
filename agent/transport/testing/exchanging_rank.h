// Ranks of one process that exchange bytes over NCCL's stand-in, each with a worker process of its own.
#ifndef CAIRN_AGENT_TRANSPORT_TESTING_EXCHANGING_RANK_H_
#define CAIRN_AGENT_TRANSPORT_TESTING_EXCHANGING_RANK_H_

#include <cstdint>
#include <future>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "agent/reader/buffer_pool.h"
#include "agent/session/peer_book.h"
#include "agent/transport/load_consumer.h"
#include "agent/transport/nccl/group_exchange.h"
#include "agent/transport/nccl/round_pace.h"
#include "agent/transport/testing/scripted_source.h"
#include "agent/transport/testing/slow_rounds.h"
#include "agent/transport/window_offers.h"
#include "common/base/mutex.h"
#include "gpu/nccl/group_keeper.h"

namespace cairn::testing {

v1::Copy Contiguous(uint32_t source, uint64_t from, uint64_t to, uint64_t bytes);
// `rows` runs of `bytes`, of which the source has one each 2 * bytes and the target one after the other.
v1::Copy Strided(uint32_t source, uint64_t from, uint64_t to, int64_t rows, uint64_t bytes);
// Does what a trainer does with a copy of at most one extent.
void Apply(const v1::Copy& copy, const char* source, char* target);

struct ExchangingRankOptions {
  uint64_t source_bytes = 0;  // filled from the rank's number
  uint64_t round_bytes = 0;   // as in GroupExchangeOptions
  absl::Duration stall_timeout = absl::Seconds(60);
};

// Its agent's parts of an exchange, and its trainer. Its methods are for one thread, but for those that say more.
class ExchangingRank {
 public:
  // `group`: its worker has joined, or will before Start.
  ExchangingRank(uint32_t rank, std::shared_ptr<GroupWorker> group, ExchangingRankOptions options);
  ~ExchangingRank() { Stop(); }

  WorkerProcess& worker() { return *group_->worker; }
  GroupWorker& group() { return *group_; }
  std::shared_ptr<GroupWorker> shared_group() { return group_; }
  const char* source() const { return source_->data(); }
  const SharedMemory& source_memory() const { return *source_; }
  v1::TransferPeer peer() const;
  ScriptedSource& calls() { return transfer_; }  // of others to this rank
  SlowRounds& rounds() { return *rounds_; }

  // Makes the exchange of a reshard that takes `copies`.
  void Make(const std::vector<v1::Copy>& copies, const PeerMap& peers);
  // Makes the exchange of a load, in which this rank reads the rounds of `plan` from its source.
  void MakeLoad(const v1::ReadPlan& plan, uint64_t round_bytes, const PeerMap& peers, std::unique_ptr<RoundPace> pace);
  // Prepares memory only, as before it is known whether the bytes go over NCCL.
  absl::Status Prepare() { return exchange_->Start(); }
  void Go() { exchange_->Go(); }
  absl::Status Start() {
    const absl::Status started = Prepare();
    if (started.ok()) Go();
    return started;
  }

  // Copies all that comes into `target`: each batch only when the next one stands in memory too, or when none is left.
  // Copies nothing if `target` is null. May run beside the others.
  absl::Status Train(char* target);
  // Any thread may call it.
  absl::Status AwaitError() { return error_.get_future().get(); }
  absl::Status broken();
  absl::Status AwaitBroken();
  // Returns how many hold the source's memory, this rank among them.
  long source_users() const { return source_.use_count(); }
  size_t offered();
  // Waits until memory is prepared, of a rank that takes something.
  void AwaitPrepared();

  void StopExchange() { exchange_->Stop(); }
  void Stop();

 private:
  void MakeExchange(const std::vector<v1::Copy>& copies, PeerMap peers, std::shared_ptr<ByteServer> lender,
                    std::unique_ptr<RoundPace> pace);
  void TakeBatch(const v1::LoadBatch& batch, char* target);

  const uint32_t rank_;
  const ExchangingRankOptions options_;
  BufferPool pool_{0, 1};
  v1::ReadPlan plan_;
  const std::shared_ptr<GroupWorker> group_;
  std::shared_ptr<SharedMemory> source_;
  std::shared_ptr<WindowOffers> offers_ = std::make_shared<WindowOffers>(options_.source_bytes);
  std::shared_ptr<SlowRounds> rounds_;
  ScriptedSource transfer_;
  Mutex mutex_;
  CondVar changed_;
  std::map<uint64_t, std::shared_ptr<SharedMemory>> offered_ ABSL_GUARDED_BY(mutex_);
  uint64_t last_id_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Status broken_ ABSL_GUARDED_BY(mutex_);
  std::promise<absl::Status> error_;
  std::vector<uint64_t> released_;
  std::shared_ptr<LoadConsumer> consumer_;
  std::unique_ptr<GroupExchange> exchange_;
};

// Starts the workers of so many ranks and lets them join one group. Dies if they cannot.
std::vector<std::unique_ptr<ExchangingRank>> JoinRanks(uint32_t count, const WorkerProcessOptions& worker,
                                                       const ExchangingRankOptions& options);

}  // namespace cairn::testing

#endif  // CAIRN_AGENT_TRANSPORT_TESTING_EXCHANGING_RANK_H_

// Carries out what the session decides about loads and reshards: a reader or a lender of memory on this side, a
// consumer on the trainer's.
#ifndef CAIRN_AGENT_EXECUTION_LOAD_EXECUTOR_H_
#define CAIRN_AGENT_EXECUTION_LOAD_EXECUTOR_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "agent/execution/executor_context.h"
#include "agent/reader/round_source.h"
#include "agent/reader/slab_image.h"
#include "agent/transport/exchange.h"
#include "agent/transport/load_consumer.h"
#include "agent/transport/slab_byte_server.h"
#include "common/base/mutex.h"
#include "common/process/task_queue.h"

namespace cairn {

// Holds what the session's loads need of this process, from StartRead to StopRead, and tells the session what becomes
// of each. Thread-safe.
class LoadExecutor {
 public:
  explicit LoadExecutor(ExecutorContext context);
  ~LoadExecutor();

  // `slab`: where files of the plan are copied from that still stand there; null for none.
  void Start(const action::StartRead& start, std::shared_ptr<SlabImage> slab);
  // The trainer has filled the memory that this rank lends in a reshard.
  void LendSource(uint64_t number);
  // There may be a group now: prepares memory of the loads that may use it.
  void PrepareExchanges();
  // Says how those bytes of the load go that have waited for it.
  void DecideExchange(uint64_t number, const v1::Exchange& exchange);
  // Frees all that the load holds; its consumers here and elsewhere end.
  void End(uint64_t number);

  // Tells the session how far all loads are.
  void Tick();

  // True if no load holds anything here.
  bool empty();
  // Ends the loads that have begun, in the caller's thread. Those that Start has only queued begin all the same.
  void EndAll();
  // Ends all loads, and begins none any more. Idempotent.
  void Stop();

 private:
  // Both sides of one load.
  struct ActiveLoad {
    uint64_t number = 0;
    TransferService::Key transfer;
    // Gives this rank's bytes to all that take them: what reads files, or `source`.
    std::shared_ptr<ByteServer> lender;
    // Set when `lender` is. From then on other ranks may ask for the load, and the exchange serves.
    std::shared_ptr<LoadConsumer> consumer;
    // Set for a reshard: what lends the source, its memory, and the ids of that memory: one for this rank's trainer
    // and, once the trainer has copied, one for the others.
    std::shared_ptr<SlabByteServer> source;
    std::shared_ptr<SharedMemory> memory;
    uint64_t writable_id = 0;
    uint64_t read_only_id = 0;
    std::shared_ptr<LoadExchange> exchange;  // set if its bytes may go another way
  };

  ActiveLoad FindActive(uint64_t number);
  std::vector<ActiveLoad> AllActive();
  void StartNow(const action::StartRead& start, const std::shared_ptr<SlabImage>& slab);
  // Makes the parts of a load, and lets other ranks use them. After an error `load` has what was made.
  absl::Status Begin(const action::StartRead& start, const std::shared_ptr<SlabImage>& slab, ActiveLoad& load,
                     RankLoad::Started& started);
  // Makes the memory for the source of a reshard, and what lends it.
  absl::Status MakeSource(const action::StartRead& start, ActiveLoad& load);
  bool ReadsThroughPageCache(const action::StartRead& start);
  absl::StatusOr<std::shared_ptr<RoundSource>> MakeReader(const action::StartRead& start,
                                                          std::shared_ptr<SlabImage> slab);
  LoadConsumerOptions ConsumerOptions(const action::StartRead& start);
  void LendSourceNow(uint64_t number);
  void DecideExchangeNow(uint64_t number, const v1::Exchange& exchange);
  void EndNow(uint64_t number);
  // Ends what has begun of a load that is not among the active ones, and gives back what it holds.
  void GiveBack(ActiveLoad load);
  // Destroys what nobody uses any more of the loads that have ended.
  void DestroyEnded();
  // Tells the session how far an active load is; nothing if there is none of that number.
  void ReportProgress(uint64_t number);
  void ReportProgress(const ActiveLoad& load);
  void Fail(uint64_t number, const absl::Status& error);

  const ExecutorContext context_;
  Mutex mutex_;
  std::map<uint64_t, ActiveLoad> loads_ ABSL_GUARDED_BY(mutex_);  // by number
  // Ended, but perhaps still in use by a call: the last user must not be one of gRPC's threads, which would then have
  // to end its own channel.
  std::vector<std::shared_ptr<LoadConsumer>> retired_ ABSL_GUARDED_BY(mutex_);
  // Their loads have ended, but their workers give memory back still.
  std::vector<std::shared_ptr<LoadExchange>> ending_ ABSL_GUARDED_BY(mutex_);
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  std::string last_read_;  // the digest of its plan; of the queue's thread
  TaskQueue queue_{1};     // in order: a load is not ended before it has begun
};

}  // namespace cairn

#endif  // CAIRN_AGENT_EXECUTION_LOAD_EXECUTOR_H_

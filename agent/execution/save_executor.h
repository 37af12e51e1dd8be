// Carries out what the session decides about saves: the slab that trainers stage into, the thread that writes it to
// bins, what is lent of it to other ranks.
#ifndef CAIRN_AGENT_EXECUTION_SAVE_EXECUTOR_H_
#define CAIRN_AGENT_EXECUTION_SAVE_EXECUTOR_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "agent/execution/executor_context.h"
#include "agent/reader/slab_image.h"
#include "agent/staging/control_page.h"
#include "agent/staging/shared_memory.h"
#include "agent/transport/shard_source.h"
#include "agent/transport/transfer_service.h"
#include "agent/writer/bin_writer.h"
#include "agent/writer/staging_progress.h"
#include "agent/writer/write_pace.h"
#include "common/base/mutex.h"
#include "common/process/task_queue.h"

namespace cairn {

// StartWrite, EndStaging, EndLending, ImageOf and GiveUpSlab are called by the one thread that executes actions, the
// others by any. It tells the session what becomes of slabs and writes.
class SaveExecutor {
 public:
  explicit SaveExecutor(ExecutorContext context);
  ~SaveExecutor();

  // A slab in place of the one that is there, whose memory is given back first.
  void MakeSlab(uint64_t bytes);
  // Returns what a load may copy out of the slab; null if that is not the one that holds `kept`.
  std::shared_ptr<SlabImage> ImageOf(const KeptSavePtr& kept);
  // Returns the slab; null if it is not the one with this id.
  std::shared_ptr<SharedMemory> SlabOf(uint64_t id);
  // Returns when no load copies from the slab any more.
  void GiveUpSlab();
  // `page`: of the trainer that stages, which says how far it is; null if there is none any more.
  void StartWrite(const action::StartWrite& start, std::shared_ptr<ControlPage> page);
  // The trainer has staged all of the save that is being written.
  void EndStaging(uint64_t save, const std::vector<uint64_t>& object_bytes);
  void StopWrite(uint64_t save);
  // Says how the shards of the save that is written move.
  void DecideMoves(uint64_t save, const v1::Exchange& exchange);
  void EndLending(uint64_t save);

  // Tells the session how far the write is.
  void Tick();

  // Stops the write, if there is one; does not wait for it.
  void Cancel();
  // The same, waits, and begins nothing any more. Idempotent.
  void Stop();

 private:
  struct WriterRun {
    uint64_t save = 0;
    std::atomic<bool> stop = false;
    std::atomic<uint64_t> bytes_done = 0;
    std::unique_ptr<ShardSource> moves;  // ends before the slab does
    std::unique_ptr<StagingProgress> staging;
    void Stop() {
      stop = true;
      moves->Stop();
    }
  };

  // The part of the slab that is lent for the save that is being written or awaits its outcome.
  struct Lent {
    uint64_t save = 0;
    TransferService::Key key;
    uint64_t descriptor_id = 0;
  };

  void MakeSlabNow(uint64_t bytes);
  void EndImages();
  // Runs in the thread of a write.
  void Write(const action::StartWrite& start, const std::shared_ptr<WriterRun>& run,
             const std::shared_ptr<SharedMemory>& slab);
  // Logs how a write ended and tells the session.
  void EndWrite(const action::StartWrite& start, const WriterRun& run, absl::StatusOr<BinWriteOutcome> outcome,
                double seconds);
  // Lends what other ranks write of this one's.
  absl::Status Lend(const action::StartWrite& start, const std::shared_ptr<SharedMemory>& slab);

  const ExecutorContext context_;
  Mutex mutex_;
  std::shared_ptr<SharedMemory> slab_ ABSL_GUARDED_BY(mutex_);
  uint64_t slab_id_ ABSL_GUARDED_BY(mutex_) = 0;
  // These are of the slab, and loads may still use them.
  std::vector<std::weak_ptr<SlabImage>> images_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<WriterRun> writing_ ABSL_GUARDED_BY(mutex_);
  std::vector<Lent> lent_ ABSL_GUARDED_BY(mutex_);
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread writer_;
  std::unique_ptr<WritePace> pace_;  // null: none
  TaskQueue queue_{1};               // makes slabs and decides moves, in order
};

}  // namespace cairn

#endif  // CAIRN_AGENT_EXECUTION_SAVE_EXECUTOR_H_

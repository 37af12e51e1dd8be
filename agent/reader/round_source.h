// The source's side of a load: reads this rank's rounds into two buffers and serves them to consumers (its own rank and
// others), until all consumers have released them.
#ifndef CAIRN_AGENT_READER_ROUND_SOURCE_H_
#define CAIRN_AGENT_READER_ROUND_SOURCE_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "agent/reader/buffer_pool.h"
#include "agent/reader/round_byte_server.h"
#include "agent/reader/round_ledger.h"
#include "agent/reader/round_reader.h"
#include "agent/session/session.h"
#include "agent/staging/memory_offers.h"

namespace cairn {

struct RoundSourceOptions {
  RoundReaderOptions reader;
  MemoryOffers offers;  // for the read buffers
  // Called when there is progress, and for the first error; on the source's thread, without a lock held.
  std::function<void()> on_progress;
  std::function<void(const absl::Status&)> on_error;
};

// Thread-safe.
class RoundSource final : public ByteServer {
 public:
  RoundSource(Storage& storage, BufferPool& pool, std::string job, ReadPlanPtr plan, RoundSourceOptions options);
  ~RoundSource() override;

  // Begins to read. Must be called once and first. RESOURCE_EXHAUSTED (MEMORY_LIMIT): the system refused a thread.
  absl::Status Start();

  uint64_t Await(uint32_t consumer, uint32_t round, uint32_t released_below, Done done) override;
  void Forget(uint64_t call) override;
  void Release(uint32_t consumer, uint32_t released_below) override;

  // Waits only for the read that runs now.
  void Stop(const absl::Status& why) override;

  Progress progress() override;

 private:
  struct Waiting {
    uint32_t consumer = 0;
    uint32_t round = 0;
    Done done;
  };

  void Run();
  absl::Status ReadAll();
  // Returns the answer for a waiting call; nothing if it must wait longer.
  std::optional<absl::StatusOr<RoundBuffer>> AnswerFor(uint32_t consumer, uint32_t round)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void AnswerWaiting();

  BufferPool& pool_;
  const ReadPlanPtr plan_;
  const RoundSourceOptions options_;
  RoundReader reader_;
  std::atomic<bool> stop_ = false;
  Mutex mutex_;
  CondVar changed_;
  RoundLedger ledger_ ABSL_GUARDED_BY(mutex_);
  absl::Status error_ ABSL_GUARDED_BY(mutex_);
  RoundBuffer buffers_[2] ABSL_GUARDED_BY(mutex_);
  uint64_t next_call_ ABSL_GUARDED_BY(mutex_) = 1;
  std::map<uint64_t, Waiting> waiting_ ABSL_GUARDED_BY(mutex_);
  Mutex stop_mutex_;  // held by the thread that is in Stop
  std::thread thread_;
};

}  // namespace cairn

#endif  // CAIRN_AGENT_READER_ROUND_SOURCE_H_

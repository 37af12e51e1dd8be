// The source's side of a load: reads this rank's rounds into two buffers and serves them to consumers (its own rank and
// others), until all consumers have released them.
#ifndef CAIRN_AGENT_READER_ROUND_SOURCE_H_
#define CAIRN_AGENT_READER_ROUND_SOURCE_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
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
  MemoryOffers offers;  // for the read buffers, and for files
  // This rank's trainer can read pieces of files. Rounds that only it takes, and that are in memory, are lent to it.
  bool lends_pieces = false;
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
  void Check(uint32_t round, PiecesRead read, Checked done) override;

  // Waits only for the read that runs now.
  void Stop(const absl::Status& why) override;

  Progress progress() override;

 private:
  struct Waiting {
    uint32_t consumer = 0;
    uint32_t round = 0;
    Done done;
  };

  // What a consumer has read of a lent round, to be checked.
  struct PiecesCheck {
    uint32_t round = 0;
    PiecesRead read;
    Checked done;
  };

  void Run();
  absl::Status ReadAll();
  // Lends the round. Returns false if it must be read.
  absl::StatusOr<bool> Lend(uint32_t round);
  // Reads the round into its buffer.
  absl::Status Read(uint32_t round);
  absl::Status RunCheck(PiecesCheck check);
  // Withdraws descriptors that no lent round needs any more.
  void DropDescriptors();
  // Returns the id by which the consumer gets the descriptor of lent pieces.
  absl::StatusOr<uint64_t> IdOf(const LentPieces::Source& source);
  bool done() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return ledger_.all_read() && unchecked_.empty(); }
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
  // These are of the source's thread: whether rounds are still lent, how many in a row were refused, and what is lent
  // of each round that is not checked yet.
  bool lends_ = false;
  int refused_ = 0;
  std::map<uint32_t, LentPieces> lent_pieces_;
  std::map<uint32_t, std::shared_ptr<const LentRound>> lent_ ABSL_GUARDED_BY(mutex_);  // rounds that have no buffer
  std::set<uint32_t> unchecked_ ABSL_GUARDED_BY(mutex_);
  std::deque<PiecesCheck> checks_ ABSL_GUARDED_BY(mutex_);
  std::map<std::pair<uint32_t, bool>, uint64_t> descriptors_ ABSL_GUARDED_BY(mutex_);  // ids, by file and in_slab
  uint64_t next_call_ ABSL_GUARDED_BY(mutex_) = 1;
  std::map<uint64_t, Waiting> waiting_ ABSL_GUARDED_BY(mutex_);
  Mutex stop_mutex_;  // held by the thread that is in Stop
  std::thread thread_;
};

}  // namespace cairn

#endif  // CAIRN_AGENT_READER_ROUND_SOURCE_H_

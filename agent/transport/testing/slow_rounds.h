// Rounds of a load that stand one after the other, as a test lets them.
#ifndef CAIRN_AGENT_TRANSPORT_TESTING_SLOW_ROUNDS_H_
#define CAIRN_AGENT_TRANSPORT_TESTING_SLOW_ROUNDS_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "agent/reader/buffer_pool.h"
#include "agent/reader/round_byte_server.h"
#include "agent/reader/round_ledger.h"
#include "cairn/v1/plan.pb.h"
#include "common/base/mutex.h"

namespace cairn::testing {

// Lends rounds as a reader of files does: each comes into one of two buffers, in which the round before the last one
// must have been released by all. Thread-safe, but for Read.
class SlowRounds final : public ByteServer {
 public:
  // A round holds the part of `file` that begins at the round's number times `round_bytes`.
  SlowRounds(const v1::ReadPlan& plan, std::string file, uint64_t round_bytes, BufferPool& pool);

  // Reads one round, if there is room. Returns false if there is none.
  bool Read();
  bool all_read();
  bool all_released();

  uint64_t Await(uint32_t consumer, uint32_t round, uint32_t released_below, Done done) override;
  void Forget(uint64_t) override {}
  void Release(uint32_t consumer, uint32_t below) override;
  void Stop(const absl::Status& why) override;
  Progress progress() override { return {}; }

 private:
  void AnswerWaiting();

  const v1::ReadPlan plan_;
  const std::string file_;
  const uint64_t round_bytes_;
  RoundBuffer buffers_[2];
  Mutex mutex_;
  RoundLedger ledger_ ABSL_GUARDED_BY(mutex_);
  absl::Status error_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::pair<uint32_t, Done>> waiting_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cairn::testing

#endif  // CAIRN_AGENT_TRANSPORT_TESTING_SLOW_ROUNDS_H_

// Lets the ranks of an exchange over NCCL wait for each other before each round of a load. A rank that waits in NCCL
// does not hear for whom, so nobody enters a round there while another rank still waits for its storage.
#ifndef CAIRN_AGENT_TRANSPORT_NCCL_ROUND_GATE_H_
#define CAIRN_AGENT_TRANSPORT_NCCL_ROUND_GATE_H_

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "agent/reader/round_byte_server.h"
#include "common/base/mutex.h"

namespace cairn {

// The agent of the group's first rank keeps it, and serves it as it serves rounds, so that ranks wait for it by the
// same call and with the same patience. To wait for a round says that the rank is ready for it; to release rounds says
// that the rank does nothing in them (any more). The gate of a round opens when no rank is left that is behind. No
// bytes stand here. Thread-safe.
class RoundGate final : public ByteServer {
 public:
  explicit RoundGate(const std::vector<uint32_t>& ranks);

  // Answered by an empty buffer when all ranks are ready for the round. INVALID_ARGUMENT (BAD_REQUEST): the rank is not
  // one of the exchange.
  uint64_t Await(uint32_t rank, uint32_t round, uint32_t released_below, Done done) override;
  void Forget(uint64_t call) override;
  void Release(uint32_t rank, uint32_t below) override;
  void Stop(const absl::Status& why) override;
  Progress progress() override { return {}; }

  // The secret under which the gate of a load is served, made of the load's own.
  static std::string TokenOf(const std::string& load_token);

 private:
  struct Waiting {
    uint32_t round = 0;
    Done done;
  };
  // Nobody is held up any more below the round that is returned.
  uint64_t OpenBelow() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void AnswerWaiting();

  Mutex mutex_;
  std::map<uint32_t, uint64_t> ready_below_ ABSL_GUARDED_BY(mutex_);  // by rank
  absl::Status error_ ABSL_GUARDED_BY(mutex_);
  uint64_t next_call_ ABSL_GUARDED_BY(mutex_) = 1;
  std::map<uint64_t, Waiting> waiting_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cairn

#endif  // CAIRN_AGENT_TRANSPORT_NCCL_ROUND_GATE_H_

// Knows which rounds of a load stand in which of the two read buffers, and who still needs them. Decides only; holds no
// bytes.
#ifndef CAIRN_AGENT_READER_ROUND_LEDGER_H_
#define CAIRN_AGENT_READER_ROUND_LEDGER_H_

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "cairn/v1/plan.pb.h"

namespace cairn {

// Round r uses buffer r % 2, once every consumer of round r - 2 has released that. Not thread-safe.
class RoundLedger {
 public:
  explicit RoundLedger(const v1::ReadPlan& plan);

  // The round to read now: the next one, if its buffer is free. Nothing: wait for releases, or all are read.
  std::optional<uint32_t> NextToRead() const;
  void MarkReady(uint32_t round);

  // A consumer needs no round below `below` any more. Never takes a release back. Counts for rounds that have been read
  // only: what a consumer says of later ones releases nothing. A rank that is no consumer is ignored.
  void Release(uint32_t consumer, uint32_t below);

  enum class Standing { kNotYet, kReady, kGone };
  Standing StandingOf(uint32_t round) const;
  // INVALID_ARGUMENT (BAD_REQUEST): the plan has no such round, or this rank takes nothing from it.
  absl::Status CheckConsumer(uint32_t consumer, uint32_t round) const;

  uint32_t rounds() const { return static_cast<uint32_t>(consumers_.size()); }
  bool all_read() const { return read_ == rounds(); }

 private:
  bool Released(uint32_t round) const;

  std::vector<std::vector<uint32_t>> consumers_;  // by round, ascending
  std::map<uint32_t, uint32_t> released_below_;   // by consumer
  uint32_t read_ = 0;                             // rounds below this stand, or stood, in their buffers
};

}  // namespace cairn

#endif  // CAIRN_AGENT_READER_ROUND_LEDGER_H_

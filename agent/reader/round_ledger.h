// Tracks which rounds of a load are in the two read buffers, and which consumers still need them. Holds no bytes.
#ifndef CAIRN_AGENT_READER_ROUND_LEDGER_H_
#define CAIRN_AGENT_READER_ROUND_LEDGER_H_

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "cairn/v1/plan.pb.h"

namespace cairn {

// Round r uses buffer r % 2, after every consumer of round r - 2 has released round r - 2. Not thread-safe.
class RoundLedger {
 public:
  explicit RoundLedger(const v1::ReadPlan& plan);

  // Returns the next round to read; nothing if its buffer is in use, or if all rounds are read.
  std::optional<uint32_t> NextToRead() const;
  void MarkReady(uint32_t round);

  // Records that a consumer does not need the rounds below `below` any more. A release cannot be taken back. It applies
  // only to rounds that have been read: releases of later rounds are ignored, and so are ranks that are no consumers.
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
  uint32_t read_ = 0;                             // rounds below this have been read
};

}  // namespace cairn

#endif  // CAIRN_AGENT_READER_ROUND_LEDGER_H_

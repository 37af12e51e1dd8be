// Gets the rounds of a load for a consumer from one peer's agent.
#ifndef CAIRN_AGENT_TRANSPORT_ROUND_FETCHER_H_
#define CAIRN_AGENT_TRANSPORT_ROUND_FETCHER_H_

#include <cstdint>
#include <functional>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cairn/v1/plan.pb.h"

namespace cairn {

// A round that stands in its source's buffer.
struct SourceRound {
  uint64_t descriptor_id = 0;  // of the buffer, at the source's descriptor socket
  uint64_t bytes = 0;
};

// One source of one load. Implementations are thread-safe, decide themselves how often they try a peer that does not
// answer, and never wait without end.
//
// Errors: UNAVAILABLE (TRANSPORT_FAILED) names the peer, which cannot be reached, serves the load no more, or sent
// other bytes than it was asked for; any other is what the peer itself said, with its rank.
class RoundFetcher {
 public:
  using Done = std::function<void(absl::StatusOr<SourceRound>)>;
  using Failed = std::function<void(const absl::Status&)>;

  // Stops.
  virtual ~RoundFetcher() = default;

  // Tells the release, then calls `done` once, when the round stands at the source or with an error. `done` runs on a
  // thread of the transport, without a lock, and may call anything here but Stop. After Cancel it may never be called.
  virtual void Await(uint32_t round, uint32_t released_below, Done done) = 0;

  // Tells the source that this consumer needs no round below `released_below`. Does not wait; a release that is
  // overtaken by a later one may be left out. `failed` runs as `done` does, if the source cannot be told; a source that
  // has ended the load needs no release.
  virtual void Release(uint32_t released_below, Failed failed) = 0;

  // Packs `copies` of the round, one after the other, into [to, to + bytes), which is the sum of their lengths. The
  // round must stand at the source, unreleased. Blocks until all is there, an error, or Cancel. The memory is the
  // caller's and is not touched after the return.
  virtual absl::Status Fetch(uint32_t round, std::span<const v1::Copy> copies, char* to, uint64_t bytes) = 0;

  // Ends all that is under way and lets nothing new begin; does not wait. Idempotent.
  virtual void Cancel() = 0;
  // Cancels, and returns when no callback runs or will run any more. Idempotent.
  virtual void Stop() = 0;
};

}  // namespace cairn

#endif  // CAIRN_AGENT_TRANSPORT_ROUND_FETCHER_H_

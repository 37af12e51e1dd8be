// Bounds how long an agent's calls to its coordinator may take, how often they come, and how large their messages are.
#ifndef CAIRN_AGENT_RUNTIME_LINK_LIMITS_H_
#define CAIRN_AGENT_RUNTIME_LINK_LIMITS_H_

#include <algorithm>
#include <cstdint>

#include "absl/time/time.h"

namespace cairn::link_limits {

// A call that carries no part of a layout or plan, and one that does.
inline constexpr absl::Duration kCallTimeout = absl::Seconds(5);
inline constexpr absl::Duration kChunkTimeout = absl::Seconds(15);
// After a call that has failed the next one waits; the pause doubles up to the longest.
inline constexpr absl::Duration kFirstPause = absl::Milliseconds(50);
inline constexpr absl::Duration kLongestPause = absl::Seconds(1);
// The parts in which layouts are sent and plans are fetched.
inline constexpr uint64_t kChunkBytes = uint64_t{2} << 20;

// The share of a coordinator's time that a call may take. All agents of a job together call no more often than that, or
// thousands of them would keep it from what they wait for.
inline constexpr absl::Duration kCallShare = absl::Microseconds(400);
// While a save or load runs, an agent calls at least so often, so that progress is seen.
inline absl::Duration ProgressInterval(uint32_t world_size) {
  return std::max(absl::Milliseconds(500), world_size * kCallShare);
}
// An answer that is so late may be on its way from an address where no coordinator is any more.
inline absl::Duration Overdue(uint32_t world_size) { return std::max(absl::Seconds(1), world_size * kCallShare); }

}  // namespace cairn::link_limits

#endif  // CAIRN_AGENT_RUNTIME_LINK_LIMITS_H_

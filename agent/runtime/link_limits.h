// How long an agent's calls to its coordinator may take, how often they come, and how large their messages are.
#ifndef CAIRN_AGENT_RUNTIME_LINK_LIMITS_H_
#define CAIRN_AGENT_RUNTIME_LINK_LIMITS_H_

#include <cstdint>

#include "absl/time/time.h"

namespace cairn::link_limits {

// A call that carries no part of a layout or plan, and one that does.
inline constexpr absl::Duration kCallTimeout = absl::Seconds(5);
inline constexpr absl::Duration kChunkTimeout = absl::Seconds(15);
// An answer that is so late may be on its way from an address where no coordinator is any more.
inline constexpr absl::Duration kOverdue = absl::Seconds(1);
// After a call that has failed the next one waits; the pause doubles up to the longest.
inline constexpr absl::Duration kFirstPause = absl::Milliseconds(50);
inline constexpr absl::Duration kLongestPause = absl::Seconds(1);
// While a save or load runs, the agent calls at least so often, so that progress is seen.
inline constexpr absl::Duration kProgressInterval = absl::Milliseconds(500);
// The parts in which layouts are sent and plans are fetched.
inline constexpr uint64_t kChunkBytes = uint64_t{2} << 20;

}  // namespace cairn::link_limits

#endif  // CAIRN_AGENT_RUNTIME_LINK_LIMITS_H_

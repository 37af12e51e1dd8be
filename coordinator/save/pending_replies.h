// The replies that an aborted save still has to give. Some trainers have not heard of its end, because the save waited
// for them, or because their agents restarted while their calls were open. Its outcome answers the next call of each.
// But it does so not at once, because all ranks may be trying again together: then the call belongs to a later attempt.
// See docs/failure_model.md, "Which attempt a call is in".
//
//   unknown --the agent's first report--> pending --call--> held --grace--> replied --the agent speaks of it no more-->
//   none
#ifndef CAIRN_COORDINATOR_SAVE_PENDING_REPLIES_H_
#define CAIRN_COORDINATOR_SAVE_PENDING_REPLIES_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/time/time.h"
#include "cairn/v1/agent_coordination_service.pb.h"
#include "coordinator/membership/counted_ranks.h"
#include "coordinator/membership/membership.h"

namespace cairn {

// A call that may be answered by an ended attempt waits this long for another rank to begin the next attempt. Ranks
// that try again together do so within moments.
inline constexpr absl::Duration kNextAttemptGrace = absl::Seconds(1);

// The replies of one save, by rank. Not thread-safe.
class PendingReplies {
 public:
  // The save of `step` has been aborted. Until Expect says so, nobody knows which trainer of a rank waits for its end:
  // the first report of the rank's agent tells, if it comes before `tell_until`.
  void Open(int64_t step, size_t ranks, absl::Time tell_until);
  // This trainer of the rank waits for the outcome; 0: none does.
  void Expect(int rank, uint64_t trainer);

  // `call` belongs to no other attempt. If a reply to it is pending, it is held.
  void Hold(const Member& member, const v1::SaveState& call, absl::Time now);
  // Notes what the member's agent says. If it does not speak any more of the call that was answered, which is the one
  // that took part in the save (`own_call`, if its agent still has the rank) or the one that was held, the trainer has
  // heard of the end.
  void OnReport(const Member& member, std::optional<uint64_t> own_call, absl::Time now);
  // The trainer of `rank` has heard the outcome in another way.
  void Heard(int rank) { Expect(rank, 0); }
  // Gives the replies to calls that were held for long enough. Returns their ranks.
  std::vector<int> Give(const Membership& members, absl::Time now);
  // A later attempt of the step has begun, so calls that are held, or that come, belong to that one.
  void Drop();

  // Returns whether the member's call is held, or was given its reply.
  bool Holds(const Member& member, const v1::SaveState& call) const { return Is(Reply::kHeld, member, call); }
  bool Gave(const Member& member, const v1::SaveState& call) const { return Is(Reply::kGiven, member, call); }

 private:
  struct Reply {
    enum Mark { kHeldCall, kMarks };
    uint32_t marks() const { return uint32_t{state == kHeld} << kHeldCall; }

    enum State { kNone, kHeld, kGiven };
    State state = kNone;
    bool known = false;    // `trainer` counts
    uint64_t trainer = 0;  // that waits for the outcome; 0 for none
    // The call that is held, or was answered.
    uint64_t agent = 0;
    uint64_t number = 0;
    absl::Time since = absl::InfiniteFuture();
  };
  bool Is(Reply::State state, const Member& member, const v1::SaveState& call) const;

  bool open_ = false;
  int64_t step_ = 0;
  absl::Time tell_until_ = absl::InfinitePast();
  CountedRanks<Reply> replies_;
};

}  // namespace cairn

#endif  // CAIRN_COORDINATOR_SAVE_PENDING_REPLIES_H_

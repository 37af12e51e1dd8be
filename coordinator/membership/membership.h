// Knows who takes part in a job: one agent per rank, each with a lease.
#ifndef CAIRN_COORDINATOR_MEMBERSHIP_MEMBERSHIP_H_
#define CAIRN_COORDINATOR_MEMBERSHIP_MEMBERSHIP_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "cairn/v1/agent_coordination_service.pb.h"
#include "coordinator/membership/layout_table.h"

namespace cairn {

// One rank's agent, and what it last said.
struct Member {
  int rank = 0;
  uint64_t incarnation = 0;
  std::string node;
  std::string transfer_address;
  std::string descriptor_socket;
  std::string boot_id;
  absl::Time heard;  // any request
  absl::Time lease_end;
  // The last report of SynchronizeAgent; it means nothing until `reported`.
  bool reported = false;
  uint64_t sequence = 0;
  // The agent's state, without the saves that it only asks about.
  v1::AgentState state;
  // The saves that it only asks about: it restarted and holds nothing of them (SaveState.ASKED).
  std::vector<v1::SaveState> asked;
  // The layouts that `state` names.
  std::vector<LayoutHold> layouts;
  // When the trainer's step last moved, and how fast it moves: smoothed over about the last five reports.
  absl::Time stepped;
  double steps_per_second = 0;
  // When a chunk of a layout last came from it.
  absl::Time uploaded = absl::InfinitePast();

  std::optional<int64_t> current_step() const;
};

// Decides who holds which rank. A pure function of calls and `now`, which must not run backwards. Not thread-safe.
class Membership {
 public:
  Membership(std::string job, absl::Duration lease_ttl) : job_(std::move(job)), lease_ttl_(lease_ttl) {}

  // Takes `request`'s rank, or renews the lease if the same incarnation holds it. The new agent may also take the place
  // of one that is known to have ended. That is known if the new agent has its descriptor socket, because a live agent
  // gives that to nobody. Returns whether the set of (rank, incarnation) changed.
  // INVALID_ARGUMENT (BAD_REQUEST, RANK_OUT_OF_RANGE), FAILED_PRECONDITION (WORLD_SIZE_MISMATCH): a live agent has
  // another world size; ALREADY_EXISTS (RANK_CONFLICT): a live agent holds the rank.
  absl::StatusOr<bool> Register(const v1::RegisterAgentRequest& request, absl::Time now);

  // Returns the member that `agent` says it is, and extends its lease.
  // FAILED_PRECONDITION (NOT_REGISTERED), ABORTED (STALE_INCARNATION).
  absl::StatusOr<Member*> Authenticate(const v1::AgentIdentity& agent, absl::Time now);

  // Keeps a report, and holds the layouts that it names. Returns false if a later report was kept already.
  bool Report(Member& member, const v1::AgentState& state, uint64_t sequence, LayoutTable& layouts, absl::Time now);

  // Gives a rank back.
  void Remove(int rank);
  // Removes members whose lease has ended and returns their ranks.
  std::vector<int> Expire(absl::Time now);

  const std::map<int, Member>& members() const { return members_; }
  const Member* Find(int rank) const;
  // 0 while nobody has registered.
  int world_size() const { return world_size_; }
  bool complete() const { return world_size_ > 0 && static_cast<int>(members_.size()) == world_size_; }
  std::vector<int> Absent() const;
  // The trainer that was attached to the rank last, also through an agent that has ended; 0 for none.
  uint64_t LastTrainer(int rank) const;
  // +1 whenever the set of (rank, incarnation) changes.
  uint64_t epoch() const { return epoch_; }

 private:
  const std::string job_;
  const absl::Duration lease_ttl_;
  std::map<int, Member> members_;
  std::map<int, uint64_t> last_trainer_;  // of ranks below the world size
  int world_size_ = 0;
  uint64_t epoch_ = 0;
};

}  // namespace cairn

#endif  // CAIRN_COORDINATOR_MEMBERSHIP_MEMBERSHIP_H_

// Knows who takes part in a job: one agent per rank, each with a lease.
#ifndef CAIRN_COORDINATOR_MEMBERSHIP_MEMBERSHIP_H_
#define CAIRN_COORDINATOR_MEMBERSHIP_MEMBERSHIP_H_

#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "cairn/v1/agent_coordination_service.pb.h"
#include "coordinator/membership/counted_ranks.h"
#include "coordinator/membership/layout_table.h"
#include "coordinator/membership/step_pace.h"

namespace cairn {

// One rank's agent, and what it last said.
struct Member {
  enum Mark { kPresent, kReported, kWithLayout, kAsking, kMarks };
  uint32_t marks() const;

  int rank = 0;
  uint64_t incarnation = 0;  // 0: the rank has no agent
  std::string node;
  std::string transfer_address;
  std::string descriptor_socket;
  std::string boot_id;
  v1::NcclSupport nccl;
  bool short_orders = false;
  absl::Time heard;      // any request
  absl::Time lease_end;  // on a clock that stands still while the coordinator cannot listen
  // The last report of SynchronizeAgent; it means nothing until `reported`.
  bool reported = false;
  uint64_t sequence = 0;
  uint64_t changes = 0;  // reports that said something new
  // The agent's state, without the saves that it only asks about.
  v1::AgentState state;
  // The saves that it only asks about: it restarted and holds nothing of them (SaveState.ASKED).
  std::vector<v1::SaveState> asked;
  // The layouts that `state` names.
  std::vector<LayoutHold> layouts;
  // Say when the trainer's step last moved, and how fast it moves.
  absl::Time stepped;
  double steps_per_second() const { return pace.steps_per_second(); }
  // A chunk of a layout last came from it then.
  absl::Time uploaded = absl::InfinitePast();

  std::optional<int64_t> current_step() const;
  // Returns whether a trainer is attached, as far as the agent has reported.
  bool has_trainer() const { return reported && state.trainer().attached(); }
  // Returns whether it has one whose process is stopped, or does not move for another reason: nothing can be expected
  // of it.
  bool halted() const;
  // The trainer's process stands as `state` says since then.
  absl::Time process_since;

 private:
  friend class Membership;
  StepPace pace;
  std::string report;  // `state` and `asked`, as they came
  std::list<int>::iterator by_silence;
};

using MemberSlots = CountedRanks<Member>;

// Gives the members by ascending rank to loops: `for (const auto& [rank, member] : members)`.
class MemberRange {
 public:
  struct Entry {
    int rank;
    const Member& member;
  };
  class Iterator {
   public:
    Iterator(const MemberSlots& slots, size_t at) : slots_(slots), at_(at) { Skip(); }
    Entry operator*() const { return {static_cast<int>(at_), slots_[at_]}; }
    Iterator& operator++() {
      ++at_;
      Skip();
      return *this;
    }
    bool operator!=(const Iterator& other) const { return at_ != other.at_; }

   private:
    void Skip() {
      at_ = slots_.NextKept(at_);
      while (at_ < slots_.size() && slots_[at_].incarnation == 0) at_ = slots_.NextKept(at_ + 1);
    }
    const MemberSlots& slots_;
    size_t at_;
  };

  explicit MemberRange(const MemberSlots& slots) : slots_(slots) {}
  Iterator begin() const { return {slots_, 0}; }
  Iterator end() const { return {slots_, slots_.size()}; }

 private:
  const MemberSlots& slots_;
};

// Says what a report has changed of what the member said before.
struct ReportChange {
  bool stale = false;    // A later report was kept already: nothing is changed.
  bool same = false;     // It says what the last one said.
  bool first = false;    // It is the first one of this agent.
  bool trainer = false;  // Another trainer is attached, or none.
  bool layout = false;   // The trainer has another layout.
  bool prepare = false;  // The trainer has called `prepare` again.
};

// Decides who holds which rank. A pure function of calls and `now`, which must not run backwards. Not thread-safe.
// Every call costs the same, however many members there are, but for those that say otherwise.
class Membership {
 public:
  Membership(std::string job, absl::Duration lease_ttl) : job_(std::move(job)), lease_ttl_(lease_ttl) {}

  // Takes `request`'s rank, or renews the lease if the same incarnation holds it. The new agent may also take the place
  // of one whose lease has ended, or that is known to have ended. That is known if the new agent has its descriptor
  // socket, because a live agent gives that to nobody. Returns whether the set of (rank, incarnation) changed.
  // INVALID_ARGUMENT (BAD_REQUEST, RANK_OUT_OF_RANGE), FAILED_PRECONDITION (WORLD_SIZE_MISMATCH): a live agent has
  // another world size; ALREADY_EXISTS (RANK_CONFLICT): a live agent holds the rank.
  absl::StatusOr<bool> Register(const v1::RegisterAgentRequest& request, absl::Time now);

  // Returns the member that `agent` says it is, and extends its lease, also one that has ended but was not removed yet.
  // FAILED_PRECONDITION (NOT_REGISTERED), ABORTED (STALE_INCARNATION).
  absl::StatusOr<const Member*> Authenticate(const v1::AgentIdentity& agent, absl::Time now);

  // The whole state of a request that leaves out what the member has said before. FAILED_PRECONDITION (NOT_REGISTERED):
  // that is not known here.
  absl::StatusOr<v1::AgentState> Complete(const Member& member, const v1::SynchronizeAgentRequest& request) const;
  // Keeps a report, and holds the layouts that it names.
  ReportChange Report(const Member& member, const v1::AgentState& state, uint64_t sequence, LayoutTable& layouts,
                      absl::Time now);

  // A chunk of a layout has come from the member.
  void Uploaded(const Member& member, absl::Time now) {
    slots_.Change(static_cast<size_t>(member.rank), [&](Member& changed) { changed.uploaded = now; });
  }

  // Says for how long in all the coordinator was too busy to listen. That time counts against no lease.
  void set_deaf(absl::Duration deaf) { deaf_ = deaf; }

  // Gives a rank back.
  void Remove(int rank);
  // Removes members whose lease has ended and returns their ranks.
  std::vector<int> Expire(absl::Time now);

  MemberRange members() const { return MemberRange(slots_); }
  size_t size() const { return slots_.count(Member::kPresent); }
  bool empty() const { return size() == 0; }
  // Null if the rank has no agent.
  const Member* Find(int rank) const {
    const Member& member = slots_[static_cast<size_t>(rank)];
    return member.incarnation == 0 ? nullptr : &member;
  }
  // 0 while nobody has registered.
  int world_size() const { return world_size_; }
  bool complete() const { return world_size_ > 0 && size() == static_cast<size_t>(world_size_); }
  // Returns whether all ranks are there and each has reported since it registered.
  bool all_reported() const { return complete() && slots_.count(Member::kReported) == size(); }
  // The number of members whose trainer has declared a layout.
  size_t with_layout() const { return slots_.count(Member::kWithLayout); }
  // The ranks whose agents ask about saves of which they hold nothing, ascending. Looks at every rank if there are
  // some.
  std::vector<int> Asking() const;
  // The number of members that report a save of the step. Looks at every rank.
  size_t Reporting(int64_t step) const;
  // Returns the ranks without an agent, ascending. It looks at every rank.
  std::vector<int> Absent() const;
  // The trainer that was attached to the rank last, also through an agent that has ended; 0 for none.
  uint64_t LastTrainer(int rank) const;
  // +1 whenever the set of (rank, incarnation) changes.
  uint64_t epoch() const { return epoch_; }

 private:
  void Drop(int rank);
  void Renew(int rank, absl::Time now);
  // Keeps a report in `member`.
  static ReportChange Keep(Member& member, const v1::AgentState& state, uint64_t sequence, LayoutTable& layouts,
                           absl::Time now);

  const std::string job_;
  const absl::Duration lease_ttl_;
  absl::Duration deaf_ = absl::ZeroDuration();
  MemberSlots slots_;
  // The ranks by the time when they were last heard. All leases are equally long, so the first one ends first.
  std::list<int> by_silence_;
  std::map<int, uint64_t> last_trainer_;  // of ranks below the world size
  int world_size_ = 0;
  uint64_t epoch_ = 0;
};

}  // namespace cairn

#endif  // CAIRN_COORDINATOR_MEMBERSHIP_MEMBERSHIP_H_

// One attempt to save one step, from the first rank that begins it to its outcome.
//
//   COLLECTING --all begun, planned, numbered, staged--> WRITING --all durable--> COMMITTING --manifest stands-->
//   COMMITTED
//        \_______________________\________________________________/
//                                 ABORTING --abort record stands, agents stopped, files removed--> ABORTED
//
// A rank needs only the plan and the attempt's number: it writes as soon as both are there and it has staged, without
// waiting for the others. Commit and abort are one decision: a record is put if none stands, and whichever record
// stands is obeyed. Once a manifest was handed to storage, nobody is told ABORTED before storage has said what stands
// there. Until then the save stays COMMITTING, and it is *stalled* if that takes too long.
#ifndef CAIRN_COORDINATOR_SAVE_SAVE_H_
#define CAIRN_COORDINATOR_SAVE_SAVE_H_

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "cairn/v1/agent_coordination_service.pb.h"
#include "cairn/v1/checkpoint_service.pb.h"
#include "coordinator/decision/awaited_rank.h"
#include "coordinator/decision/job_context.h"
#include "coordinator/decision/rank_error.h"
#include "coordinator/membership/counted_ranks.h"
#include "coordinator/membership/news.h"
#include "coordinator/save/pending_replies.h"
#include "coordinator/save/save_exchange.h"
#include "coordinator/timeline/operation_timeline.h"
#include "store/read/lineage.h"

namespace cairn {

struct SavePlanEntry;

// Ranks that fail for one cause (a full disk) fail within moments of each other. The save waits this long, to report
// them together.
inline constexpr absl::Duration kSaveFailureGrace = absl::Milliseconds(500);
// Ranks that lack bytes of an exchange often fail before the one at fault: its agent notices last that its worker
// hangs.
inline constexpr absl::Duration kExchangeFaultGrace = absl::Seconds(2);

// What a save knows of one rank.
struct SaveRank {
  // kWritten: in whichever attempt. kActive: its agent may still touch the files of an aborted attempt.
  enum Mark { kBegun, kStaged, kWritten, kFailed, kActive, kMarks };
  uint32_t marks() const;
  // Returns whether the trainer's copy is complete.
  bool staged() const;
  bool failed() const;

  bool begun = false;
  uint64_t agent = 0;
  uint64_t trainer = 0;  // whose call it is, attached or not
  v1::SaveState state;
  absl::Time progress = absl::InfinitePast();
  // After an abort: the agent has stopped, or it is gone.
  bool stopped = false;
  bool gone = false;
  AwaitedRank awaited;
};

// A function of reports, results and `context.now`. Its effects are actions of the context. Not thread-safe.
class Save {
 public:
  // The saves that began before one, and that may commit yet.
  struct Before {
    const Save* first = nullptr;  // null: there is none
    std::optional<int64_t> step;  // the smallest one; what is smaller commits first
  };

  // `wall` is only shown to people.
  Save(int64_t step, absl::Time now, absl::Time wall)
      : step_(step),
        created_(now),
        created_wall_(wall),
        progress_base_(now),
        timeline_(std::make_shared<OperationTimeline>(v1::Timeline::SAVE, now, wall)) {}

  int64_t step() const { return step_; }
  absl::Time created() const { return created_; }
  absl::Time created_wall() const { return created_wall_; }
  v1::Phase::Value phase() const { return phase_; }
  bool ended() const { return phase_ == v1::Phase::COMMITTED || phase_ == v1::Phase::ABORTED; }
  // The revision of what people see when it ended.
  uint64_t end_revision() const { return end_revision_; }
  // Says why it is or was aborted.
  const absl::Status& error() const { return error_; }
  // What looks wrong in the state, which does not end the save.
  const std::vector<absl::Status>& warnings() const { return warnings_; }
  // Returns STORAGE_STALLED if the outcome has been unknown for longer than the storage timeout. OK otherwise.
  const absl::Status& stalled() const { return stalled_; }
  uint32_t attempt() const { return attempt_; }
  // What stands in storage, if it was committed.
  const StoredAttempt& outcome() const { return outcome_; }
  bool has_plan() const { return !plan_.plan_digest.empty(); }
  uint64_t planned_bytes() const { return plan_.bytes; }
  const SaveExchange& exchange() const { return exchange_; }
  const CountedRanks<SaveRank>& ranks() const { return ranks_; }
  const SaveRank& rank(int rank) const { return ranks_[static_cast<size_t>(rank)]; }
  bool AllBegun(const JobContext& context) const;
  bool AllStaged() const { return ranks_.all(SaveRank::kStaged); }
  // Returns whether the rank's files of this attempt are durable.
  bool Written(const SaveRank& rank) const;
  // The progress of every rank counts from here at the earliest: the time when the plan or the number came.
  absl::Time progress_base() const { return progress_base_; }

  // Adds a request that this save answers. The first one is written into the outcome.
  void AddRequest(const std::string& request_id, absl::Time deadline);
  bool HasRequest(const std::string& request_id) const;
  // The first one; empty if there is none.
  std::string request_id() const { return request_ids_.empty() ? "" : request_ids_.front(); }

  // Takes what `member` reports of this step.
  News Report(const Member& member, const v1::SaveState& state, const JobContext& context);
  // Says that the rank's agent has come, is lost, or has another trainer.
  News OnMember(int rank, const JobContext& context);
  // Takes every step that follows from the state and the time. It looks at every rank, so the caller does it not after
  // every event, but when the news say that a step may be possible, after the result of an action, and every moment for
  // what time brings. There is a step in its news if the save has come into another phase since the last call.
  News Advance(const Before& before, const JobContext& context);
  // Aborts, unless a manifest was handed out already.
  void Abort(const absl::Status& error, const JobContext& context);
  // A person gives the save up. This is as Abort; but if a manifest was handed out, an abort record is put at the same
  // path, and whichever record stands decides.
  void Cancel(const JobContext& context);

  // The results of this save's actions. Those of an older action (by its ticket) are ignored.
  // Returns false if the number was not taken; then nobody writes there.
  bool OnReserved(uint64_t ticket, const absl::StatusOr<Reserved>& reserved, const JobContext& context);
  void OnManifest(uint64_t ticket, const absl::StatusOr<MadeManifest>& made, const JobContext& context);
  void OnOutcome(uint64_t ticket, const PutAnswer& answer, const JobContext& context);
  void OnRemoved(uint64_t ticket, const absl::Status& status, const JobContext& context);

  // Returns what an ended save has left in storage, because storage did not answer. It is to be removed later. Answers
  // once.
  std::optional<StoredAttempt> TakeLeftover() { return std::exchange(leftover_, std::nullopt); }

  // Returns whether `state` of `member` belongs to this save, so that this save's order answers it, and not to a later
  // call.
  bool Answers(const Member& member, const v1::SaveState& state) const;
  // Returns whether that call took part in this save, or was told how it ended.
  bool TookPart(const Member& member, const v1::SaveState& state) const;
  // Returns whether the trainer of `rank` knows this save by this number (SaveState.save).
  bool HasNumber(int rank, uint64_t number) const;
  // Writes the outcome of an ended save into `order`: COMMITTED or ABORTED, and what goes with it.
  void TellOutcome(v1::SaveOrder& order) const;
  v1::SaveOrder OrderFor(const Member& member, const v1::SaveState& state, const JobContext& context) const;

  // After an abort. `state` is a call that belongs to no other attempt: if a reply to it is pending, it is held.
  void HoldForReply(const Member& member, const v1::SaveState& state, absl::Time now);
  // Tells the pending replies what `member` has reported.
  void NoteTold(const Member& member, absl::Time now);
  PendingReplies& replies() { return replies_; }

 private:
  // What all ranks are told alike, and how far the save is.
  struct Told {
    v1::Phase::Value phase = v1::Phase::COLLECTING;
    bool planned = false;
    uint32_t attempt = 0;
    bool requested = false;
    ExchangeWay::Kind way = ExchangeWay::Kind::kNone;
    absl::Status stalled;
    absl::Status error;

    bool operator==(const Told&) const = default;
  };
  Told told() const;
  // Returns for whom it is news that `before` has become `after`.
  News Since(const Told& before, const Told& after) const;

  Operation operation() const { return {"save", step_, attempt_}; }
  // Takes up the size of the world.
  void Fit(const JobContext& context) {
    ranks_.Grow(std::max<size_t>(1, static_cast<size_t>(context.members.world_size())));
  }
  // Returns whether the rank's call took part, and its agent still has the rank.
  bool HasBegunBy(const Member& member) const {
    return rank(member.rank).begun && rank(member.rank).agent == member.incarnation;
  }
  void Begin(const Member& member, const v1::SaveState& state, const JobContext& context);
  void OnStopped(const Member& member, const v1::SaveState& state);
  void NoteGone(int rank, const JobContext& context);

  // Looks at one rank's agent and trainer.
  std::optional<MemberFault> LookAt(int index, const JobContext& context);
  bool CheckMembers(const JobContext& context);
  // Returns whether another rank waits for shards that it writes and this one lends.
  bool OthersWaitFor(int index) const;
  // Writes into the timeline what the rank's agent has reported.
  void Record(int rank, const v1::SaveState& state, absl::Time now);
  bool CheckErrors(const Save* earlier, const JobContext& context);
  // The error of a later save, for which ranks had no memory because this save goes on: it names the ranks for which
  // this one waits. OK if it waits for none.
  absl::Status WhyHeldUp(const Operation& later, const JobContext& context) const;
  // Puts whoever is at fault for a failed exchange in place of the ranks that lack its bytes. Returns false while that
  // may still be said.
  bool NameExchangeFault(std::vector<RankError>& errors, const JobContext& context) const;
  bool CheckDeadlines(const JobContext& context);
  // Returns false if rank 0 reports what no manifest may have, and aborts then: readers would take the checkpoint for
  // damaged.
  bool CheckContents(const JobContext& context);
  // Returns false if a rank staged without checking all its replicas; the save is then aborted.
  bool CheckReplicasChecked(const JobContext& context);
  // Aborts if ranks go on with what an earlier coordinator told them, and it is not what this one says.
  void CheckAdopted(const JobContext& context);
  // Decides how shards move, as far as that can be said now. False: the save cannot go on.
  bool CheckExchange(const JobContext& context);
  void AdvanceOnce(const Before& before, const JobContext& context);
  void AdvanceForward(const JobContext& context);
  // Returns the newest committed step on which a save of a training that has resumed so builds.
  std::optional<int64_t> BuildsOn(const std::optional<ResumePoint>& resumed, const JobContext& context) const;
  void AdvancePlan(const JobContext& context);
  void TakePlan(const SavePlanEntry& entry, const JobContext& context);
  void AdvanceCommit(const Before& before, const JobContext& context);
  void AdvanceAbort(const JobContext& context);
  void PutManifest(const JobContext& context);
  void PutAbortRecord(const absl::Status& error, const JobContext& context);
  // The error that names storage instead of these late ranks, if the commit of an earlier save holds them up.
  std::optional<absl::Status> StorageStall(const std::vector<int>& late, const JobContext& context) const;
  void Stall(absl::Status stalled, const JobContext& context);
  void SetPhase(v1::Phase::Value phase, const JobContext& context);
  void Commit(const StoredAttempt& outcome, const JobContext& context);
  void End(v1::Phase::Value phase, const JobContext& context);
  std::vector<std::string> AlarmKinds() const;
  // Notes to whom a reply is pending, when the save has been aborted.
  void OpenReplies(const JobContext& context);

  const int64_t step_;
  const absl::Time created_;
  const absl::Time created_wall_;
  v1::Phase::Value phase_ = v1::Phase::COLLECTING;
  uint64_t end_revision_ = 0;
  CountedRanks<SaveRank> ranks_;
  std::vector<std::string> request_ids_;
  absl::Time deadline_ = absl::InfiniteFuture();
  Told told_;  // when Advance was called last

  absl::Time progress_base_;
  // Names the entry in the table of plans, once it was asked for. It is empty if a rank has begun since.
  std::string plan_key_;
  PlannedSave plan_;
  std::vector<bool> moving_;  // by rank: it gives or takes shards by the plan
  bool check_replicas_ = false;
  SaveExchange exchange_;

  uint32_t attempt_ = 0;
  uint64_t attempt_nonce_ = 0;  // stands in the attempt's directory
  // True if the number came from agents that began under an earlier coordinator.
  bool adopted_ = false;
  uint64_t reserve_ticket_ = 0;
  absl::Time reserve_time_ = absl::InfiniteFuture();

  absl::Time first_failure_ = absl::InfiniteFuture();

  uint64_t manifest_ticket_ = 0;
  absl::Time manifest_time_ = absl::InfiniteFuture();
  std::optional<MadeManifest> manifest_;
  std::vector<absl::Status> warnings_;
  // The ticket of the last put that was not answered; 0 for none. An answer to an earlier put counts too, if it says
  // what stands.
  uint64_t outcome_ticket_ = 0;
  bool outcome_ticket_is_manifest_ = false;
  // True once a manifest was handed to storage. From then on only what stands in storage decides.
  bool decided_ = false;
  absl::Time decided_time_ = absl::InfiniteFuture();
  // True if a put of the manifest failed in a way that leaves open whether it stands.
  bool in_doubt_ = false;
  // Says why an abort record is put though the save was decided: a person gave it up, or its files are gone.
  absl::Status given_up_;
  absl::Status stalled_;

  absl::Status error_;
  absl::Time abort_time_ = absl::InfiniteFuture();
  bool abort_record_stands_ = false;
  absl::Time next_outcome_try_ = absl::InfinitePast();
  uint64_t remove_ticket_ = 0;
  absl::Time remove_time_ = absl::InfiniteFuture();
  std::optional<StoredAttempt> leftover_;
  StoredAttempt outcome_;
  PendingReplies replies_;
  const std::shared_ptr<OperationTimeline> timeline_;
};

// The checkpoint from which the training of a call has gone on; nothing if it has loaded none.
std::optional<ResumePoint> ResumedFrom(const v1::SaveState& state);

}  // namespace cairn

#endif  // CAIRN_COORDINATOR_SAVE_SAVE_H_

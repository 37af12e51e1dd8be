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
#include "common/base/rank_table.h"
#include "coordinator/decision/job_context.h"
#include "coordinator/decision/rank_error.h"
#include "coordinator/decision/shown_ranks.h"
#include "coordinator/save/save_exchange.h"
#include "coordinator/timeline/operation_timeline.h"
#include "store/read/lineage.h"

namespace cairn {

// Ranks that fail for one cause (a full disk) fail within moments of each other. The save waits this long, to report
// them together.
inline constexpr absl::Duration kSaveFailureGrace = absl::Milliseconds(500);
// Ranks that lack bytes of an exchange often fail before the one at fault: its agent notices last that its worker
// hangs.
inline constexpr absl::Duration kExchangeFaultGrace = absl::Seconds(2);
// A call that may be answered by an ended attempt waits this long for another rank to begin the next attempt. Ranks
// that try again together do so within moments.
inline constexpr absl::Duration kNextAttemptGrace = absl::Seconds(1);

// A function of reports, results and `context.now`. Its effects are actions of the context. Not thread-safe.
class Save {
 public:
  enum class Phase { kCollecting, kWriting, kCommitting, kCommitted, kAborting, kAborted };

  // `wall` is only shown to people.
  Save(int64_t step, uint64_t first_revision, absl::Time now, absl::Time wall)
      : step_(step),
        created_(now),
        created_wall_(wall),
        revision_(first_revision),
        progress_base_(now),
        timeline_(std::make_shared<OperationTimeline>(v1::Timeline::SAVE, now, wall)) {}

  int64_t step() const { return step_; }
  absl::Time created() const { return created_; }
  Phase phase() const { return phase_; }
  bool ended() const { return phase_ == Phase::kCommitted || phase_ == Phase::kAborted; }
  const absl::Status& error() const { return error_; }
  uint32_t attempt() const { return attempt_; }
  uint64_t revision() const { return revision_; }

  // Adds a request that this save answers. The first one is written into the outcome.
  void AddRequest(const std::string& request_id, absl::Time deadline);
  bool HasRequest(const std::string& request_id) const;

  // Takes what `member` reports of this step.
  void Report(const Member& member, const v1::SaveState& state, JobContext& context);
  // Says that the rank's agent has come, is lost, or has another trainer.
  void OnMember(int rank, JobContext& context);
  // Does everything that follows from the state and the time. It looks at every rank, so the caller does it not after
  // every event, but when `attention()` says so, after the result of an action, and every moment for what time brings.
  // `earlier` is the save that began first of those that may still commit, if it began before this one; else null.
  void Advance(JobContext& context, const Save* earlier = nullptr);
  // Returns whether a report or a member has made a step possible since the last Advance. Costs the same, however many
  // ranks there are.
  bool attention() const { return attention_; }
  // Aborts, unless a manifest was handed out already.
  void Abort(absl::Status error, JobContext& context);
  // A person gives the save up. This is as Abort; but if a manifest was handed out, an abort record is put at the same
  // path, and whichever record stands decides.
  void Cancel(JobContext& context);
  // Returns STORAGE_STALLED if the outcome has been unknown for longer than the storage timeout. OK otherwise.
  const absl::Status& stalled() const { return stalled_; }

  // The results of this save's actions. Those of an older action (by its ticket) are ignored.
  // Returns false if the number was not taken; then nobody writes there.
  bool OnReserved(uint64_t ticket, const absl::StatusOr<Reserved>& reserved, JobContext& context);
  void OnManifest(uint64_t ticket, const absl::StatusOr<MadeManifest>& made, JobContext& context);
  void OnOutcome(uint64_t ticket, const PutAnswer& answer, JobContext& context);
  void OnRemoved(uint64_t ticket, const absl::Status& status, JobContext& context);

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

  // The save as people see it, with the ranks of `shown`; by default with those that ShownRanks finds worth a look.
  v1::Checkpoint View(const JobContext& context) const;
  v1::Checkpoint View(const JobContext& context, const ShownRanks& shown) const;
  NoteworthyRanks Noteworthy(const JobContext& context) const;
  // Returns in which of its counts, and of its conclusions from the plan, a look at everything finds something else;
  // empty if in none. Only tests call it.
  std::string Inconsistency() const;

  // When a save is aborted, some trainers have not heard of it, because the save waited for them, or because their
  // agents restarted while their calls were open. This outcome is owed to them: it answers the next call of each. But
  // it does so not at once, because all ranks may be trying again together. See docs/failure_model.md, "Which attempt a
  // call is in".
  // `state` is a call that belongs to no other attempt. If an answer is owed to it, the call is held.
  void HoldOwed(const Member& member, const v1::SaveState& state, absl::Time now);
  // Notes that trainers have heard of the end, when their agents do not speak of the save any more. The first report of
  // a rank that had not come back to this coordinator when the save was aborted tells whose trainer is owed.
  void NoteTold(const Member& member, const JobContext& context);
  // Calls that were held for long enough are answered.
  void AnswerOwed(JobContext& context);
  // Returns whether calls are held.
  bool holds_calls() const { return held_calls_ > 0; }
  // Notes that the trainer of `rank` has heard the outcome in another way.
  void Heard(int rank);
  // A later attempt of the step has begun, so calls that are held, or that come, belong to that one.
  void OweNothing();

 private:
  friend struct BookkeepingFault;  // of tests

  struct Rank {
    bool begun = false;
    uint64_t agent = 0;
    uint64_t trainer = 0;  // whose call it is, attached or not
    v1::SaveState state;
    absl::Time progress = absl::InfinitePast();
    bool stopped = false;
    // True if the rank's agent was seen while this save waited for the rank; then also which trainer is waited for.
    bool seen = false;
    uint64_t seen_trainer = 0;
    // True if that trainer took the place of another one that was waited for before.
    bool successor = false;
    // The time since which the rank has no trainer, while it has not begun.
    absl::Time trainer_gone = absl::InfiniteFuture();
    // After an abort: the trainer to which the outcome is owed, and its call, which is held and then answered.
    uint64_t owed_trainer = 0;
    // False if its agent had not reported yet, so that its trainer was not known.
    bool owed_known = false;
    enum class OwedCall { kNone, kHeld, kAnswered } owed_call = OwedCall::kNone;
    uint64_t owed_agent = 0;
    uint64_t owed_number = 0;
    absl::Time held_since = absl::InfiniteFuture();

    bool OwedTo(const Member& member, const v1::SaveState& call) const {
      return owed_call != OwedCall::kNone && owed_agent == member.incarnation && call.call() <= owed_number;
    }
  };

  static bool Staged(const v1::SaveState& state);
  static bool Failed(const v1::SaveState& state);
  Operation operation() const { return {"save", step_, attempt_}; }
  // Takes up the size of the world.
  void Fit(const JobContext& context);
  Rank& At(int rank, const JobContext& context);
  bool Written(const Rank& rank) const;
  bool AllBegun(const JobContext& context) const;
  bool has_plan() const { return !plan_.plan_digest.empty(); }
  v1::RankProgress::Phase PhaseOf(const Rank& rank) const;
  // Returns when the rank last got nearer to what it is waited for.
  absl::Time ProgressOf(int rank, const Rank& state, const JobContext& context) const;
  std::string DetailOf(int rank, const Rank& state, const JobContext& context) const;
  // The ranks that the save waits for now.
  std::vector<int> Awaited(const JobContext& context) const;
  // Returns those at fault among ranks that are awaited: see HoldingUp.
  std::vector<int> AtFault(std::vector<int> ranks, const JobContext& context) const;
  // Returns whether the rank, one of those that are awaited, is late.
  bool IsLate(int rank, const JobContext& context) const;
  // `ranks` without those that wait for another rank to stage shards that they write for it, or to stage at all before
  // shards can move over NCCL. That rank is late, not they.
  std::vector<int> WithoutExcused(std::vector<int> ranks) const;
  bool AllStaged() const { return counts_.staged == ranks_.size(); }
  // Returns whether another rank waits for shards that it writes and this one lends.
  bool OthersWaitFor(int index) const;
  std::vector<NamedRank> NamedRanks(const std::vector<int>& ranks, const JobContext& context) const;

  // Looks at one rank's agent and trainer.
  std::optional<MemberFault> LookAt(int index, JobContext& context);
  bool CheckMembers(JobContext& context);
  // Writes into the timeline what the rank's agent has reported.
  void Record(int rank, const v1::SaveState& state, absl::Time now);
  // The number of ranks in each state, kept with every report.
  struct Counts {
    size_t begun = 0;
    size_t staged = 0;
    size_t written = 0;
    size_t failed = 0;

    bool operator==(const Counts&) const = default;
  };
  // Adds `sign` for everything that is counted of `rank`.
  void Count(const Rank& rank, int sign) { Count(rank, sign, counts_); }
  void Count(const Rank& rank, int sign, Counts& counts) const;
  // Counts all ranks anew, after a change of what makes one count.
  void Recount() { counts_ = Counted(); }
  Counts Counted() const;
  // Lets those hear of the plan at once who do not follow it yet.
  void TellPlan(JobContext& context);
  // Notes which trainer of a rank, which has not begun, is waited for.
  static void See(Rank& rank, const Member& member, absl::Time now);
  // Is called before the save ends because ranks or trainers were lost. A trainer that took the place of a lost one is
  // released, so that its call begins a new attempt.
  void ReleaseSuccessors();
  bool CheckErrors(const Save* earlier, JobContext& context);
  // The error of a later save of `step`, for which ranks had no memory because this save goes on: it names the ranks
  // for which this one waits. OK if it waits for none.
  absl::Status WhyHeldUp(const Operation& later, const JobContext& context) const;
  // Puts whoever is at fault for a failed exchange in place of the ranks that lack its bytes. Returns false while that
  // may still be said.
  bool NameExchangeFault(std::vector<RankError>& errors, const JobContext& context) const;
  bool CheckDeadlines(JobContext& context);
  // Returns false if a rank staged without checking all its replicas; the save is then aborted.
  bool CheckReplicasChecked(JobContext& context);
  // Decides how shards move, as far as that can be said now. False: the save cannot go on.
  bool CheckExchange(JobContext& context);
  void AdvanceForward(JobContext& context);
  void AdvancePlan(JobContext& context);
  void AdvanceCommit(JobContext& context);
  void AdvanceAbort(JobContext& context);
  // The number of ranks that may still touch their files.
  size_t Unstopped(const JobContext& context) const;
  void PutManifest(JobContext& context);
  void PutAbortRecord(const absl::Status& error, JobContext& context);
  // The error that names storage instead of these late ranks, if the commit of an earlier save holds them up.
  std::optional<absl::Status> StorageStall(const std::vector<int>& late, const JobContext& context) const;
  void Stall(absl::Status stalled, JobContext& context);
  void SetPhase(Phase phase, JobContext& context);
  void Commit(const StoredAttempt& outcome, JobContext& context);
  void End(Phase phase, JobContext& context);
  // Notes to whom the outcome of an aborted save is owed; see HoldOwed.
  void OweOutcome(const JobContext& context);
  void Touch() { ++revision_; }

  const int64_t step_;
  const absl::Time created_;
  const absl::Time created_wall_;
  Phase phase_ = Phase::kCollecting;
  uint64_t revision_;
  RankTable<Rank> ranks_;
  std::vector<std::string> request_ids_;
  absl::Time deadline_ = absl::InfiniteFuture();

  // They only say when to look at all ranks.
  Counts counts_;
  size_t unstopped_ = 0;  // when ABORTING
  size_t held_calls_ = 0;
  bool attention_ = true;

  // The progress of every rank counts from here at the earliest: the time when the plan or the number came.
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
  // Set if replicas of tensors differed, which does not end the save.
  absl::Status warning_;
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
  // True after an abort: Rank::owed_known counts.
  bool owes_unknown_ = false;
  int owed_answered_ = 0;
  const std::shared_ptr<OperationTimeline> timeline_;
};

std::string_view SavePhaseName(Save::Phase phase);

// The checkpoint from which the training of a call has gone on; nothing if it has loaded none.
std::optional<ResumePoint> ResumedFrom(const v1::SaveState& state);

}  // namespace cairn

#endif  // CAIRN_COORDINATOR_SAVE_SAVE_H_

// One attempt to save one step, from the first rank that begins it to its verdict.
//
//   COLLECTING --all begun, planned, numbered, staged--> WRITING --all durable--> COMMITTING --manifest stands-->
//   COMMITTED
//        \_______________________\________________________________/
//                                 ABORTING --tombstone stands, agents stopped, files removed--> ABORTED
//
// What a rank may do follows from the plan and the attempt's number alone: it writes as soon as both are there and it
// has staged, without waiting for the others. Commit and abort are one decision, the record that is put if none stands;
// whatever is found there is obeyed, in either direction. Once a manifest was handed to storage nobody is told ABORTED
// before storage has said what stands there: the save stays COMMITTING, and is *stalled* when that takes too long.
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
#include "coordinator/decision/job_context.h"
#include "coordinator/decision/rank_error.h"

namespace cairn {

// Ranks that fail for one cause (a full disk) fail within moments of each other: they are reported together.
inline constexpr absl::Duration kSaveFailureGrace = absl::Milliseconds(500);
// How long a call that may be answered by an ended attempt waits for another rank to begin the next one. Ranks that try
// again together do so within moments.
inline constexpr absl::Duration kNextAttemptGrace = absl::Seconds(1);

// A function of reports, results and `context.now`; effects are pushed to `context.actions`. Not thread-safe.
class Save {
 public:
  enum class Phase { kCollecting, kWriting, kCommitting, kCommitted, kAborting, kAborted };

  // `wall` is for people alone.
  Save(int64_t step, uint64_t first_revision, absl::Time now, absl::Time wall)
      : step_(step), created_(now), created_wall_(wall), revision_(first_revision), progress_base_(now) {}

  int64_t step() const { return step_; }
  Phase phase() const { return phase_; }
  bool ended() const { return phase_ == Phase::kCommitted || phase_ == Phase::kAborted; }
  const absl::Status& error() const { return error_; }
  uint32_t attempt() const { return attempt_; }
  uint64_t revision() const { return revision_; }

  // A request that this save answers; the first one is written into the verdict.
  void AddRequest(const std::string& request_id, absl::Time deadline);
  bool HasRequest(const std::string& request_id) const;

  // What `member` says of this step.
  void Report(const Member& member, const v1::SaveState& state, JobContext& context);
  // Everything that follows from the state and the time. Call after every event.
  void Advance(JobContext& context);
  // Aborts, unless a manifest was handed out already.
  void Abort(absl::Status error, JobContext& context);
  // By a person. As Abort; if a manifest was handed out, a tombstone is put in its place, and whichever stands decides.
  void Cancel(JobContext& context);
  // STORAGE_STALLED: the outcome is unknown, for longer than the storage timeout. OK otherwise.
  const absl::Status& stalled() const { return stalled_; }

  // Results of this save's actions; those of an older one (by ticket) are ignored.
  // False if a number was not taken: nobody writes there.
  bool OnReserved(uint64_t ticket, const absl::StatusOr<Reserved>& reserved, JobContext& context);
  void OnManifest(uint64_t ticket, const absl::StatusOr<MadeManifest>& made, JobContext& context);
  void OnVerdict(uint64_t ticket, const PutOutcome& outcome, JobContext& context);
  void OnRemoved(uint64_t ticket, const absl::Status& status, JobContext& context);

  // What an ended save has left in storage, because that did not answer: to be taken away later. Once.
  std::optional<Leftover> TakeLeftover() { return std::exchange(leftover_, std::nullopt); }

  // Whether `state` of `member` belongs to this save, so that this save's order answers it, and not to a later call.
  bool Answers(const Member& member, const v1::SaveState& state) const;
  // Whether that call took part in this save, or was told how it ended.
  bool TookPart(const Member& member, const v1::SaveState& state) const;
  // Of an ended save: COMMITTED or ABORTED, and what goes with it.
  void TellVerdict(v1::SaveOrder& order) const;
  v1::SaveOrder OrderFor(const Member& member, const v1::SaveState& state, const JobContext& context) const;

  // Changes whenever the orders of ranks change by more than their own reports.
  std::string OrdersSignature() const;

  // For people; `request_id` as asked for.
  v1::Checkpoint View(const JobContext& context) const;

  // Of a save that was aborted: some trainers have not heard of it, because it waited for them, or because their agents
  // restarted while their calls were open. The next call of each is answered by this verdict; but not at once, for it
  // may as well be one with which all ranks try again. See docs/failure_model.md, "Which attempt a call is in".
  // `state` is a call that belongs to no other attempt: if it is the one that is owed an answer, it is held.
  void HoldOwed(const Member& member, const v1::SaveState& state, absl::Time now);
  // What an agent does not speak of any more, its trainer has heard. The first report of a rank that had not come back
  // to this coordinator when the save was aborted tells whose trainer is owed.
  void NoteTold(const Member& member, const JobContext& context);
  // Calls that were held for long enough are answered.
  void AnswerOwed(const JobContext& context);
  // The trainer of `rank` has heard the verdict in another way.
  void Heard(int rank);
  // A later attempt of the step has begun: calls that are held, or come, belong to that one.
  void OweNothing();

 private:
  struct Rank {
    bool begun = false;
    uint64_t agent = 0;
    uint64_t trainer = 0;
    bool trainer_attached = false;
    v1::SaveState state;
    absl::Time progress = absl::InfinitePast();
    bool stopped = false;
    // Seen while this save waited for it: its agent, and the trainer that is waited for.
    bool seen = false;
    uint64_t seen_trainer = 0;
    // ... which took the place of one that was waited for before.
    bool successor = false;
    // Before it has begun: since when it has no trainer.
    absl::Time trainer_gone = absl::InfiniteFuture();
    // When it was aborted: the trainer that is owed an answer; then its call, which is held and then answered.
    uint64_t owed_trainer = 0;
    // Its agent had not reported yet, so its trainer was not known.
    bool owed_unknown = false;
    enum class OwedCall { kNone, kHeld, kAnswered } owed_call = OwedCall::kNone;
    uint64_t owed_agent = 0;
    uint64_t owed_number = 0;
    absl::Time held_since = absl::InfiniteFuture();

    bool OwedTo(const Member& member, const v1::SaveState& call) const {
      return owed_call != OwedCall::kNone && owed_agent == member.incarnation && call.call() <= owed_number;
    }
  };

  static bool Staged(const v1::SaveState& state);
  Operation operation() const { return {"save", step_, attempt_}; }
  Rank& At(int rank, const JobContext& context);
  bool Written(const Rank& rank) const;
  bool AllBegun(const JobContext& context) const;
  bool has_plan() const { return !plan_.plan_digest.empty(); }
  std::string PhaseOf(const Rank& rank) const;
  // When the rank last got nearer to what it is waited for.
  absl::Time ProgressOf(int rank, const Rank& state, const JobContext& context) const;
  std::string DetailOf(int rank, const Rank& state, const JobContext& context) const;
  // Ranks that the save waits for now.
  std::vector<int> Awaited(const JobContext& context) const;
  // `ranks` without those that wait for another one to stage shards that they write for it: that one is to blame.
  std::vector<int> WithoutExcused(std::vector<int> ranks) const;
  // Whether another rank waits for shards that it writes and this one lends.
  bool OthersWaitFor(int index) const;
  std::vector<NamedRank> NamedRanks(const std::vector<int>& ranks, const JobContext& context) const;

  bool CheckMembers(JobContext& context);
  // Notes which trainer a rank that has not begun is waited for with.
  static void See(Rank& rank, const Member& member, absl::Time now);
  // Before the save ends for the loss of ranks or trainers: who came to take the place of one of them begins anew.
  void ReleaseSuccessors();
  bool CheckErrors(JobContext& context);
  bool CheckDeadlines(JobContext& context);
  // False if a rank staged without checking all its replicas; then the save was aborted.
  bool CheckReplicasChecked(JobContext& context);
  void AdvanceForward(JobContext& context);
  void AdvancePlan(JobContext& context);
  void AdvanceCommit(JobContext& context);
  void AdvanceAbort(JobContext& context);
  bool AllStopped(const JobContext& context) const;
  void PutManifest(JobContext& context);
  void PutTombstone(const absl::Status& error, JobContext& context);
  // Why storage is to blame, and no rank, for what these ranks did not do: an earlier save's commit holds them up.
  std::optional<absl::Status> BlameStorage(const std::vector<int>& late, const JobContext& context) const;
  void Stall(absl::Status stalled, JobContext& context);
  void SetPhase(Phase phase, JobContext& context);
  void Commit(const VerdictSummary& verdict, JobContext& context);
  void End(Phase phase, JobContext& context);
  void Touch() { ++revision_; }

  const int64_t step_;
  const absl::Time created_;
  const absl::Time created_wall_;
  Phase phase_ = Phase::kCollecting;
  uint64_t revision_;
  std::vector<Rank> ranks_;
  std::vector<std::string> request_ids_;
  absl::Time deadline_ = absl::InfiniteFuture();

  // Resets what everyone is measured against: the plan is there, the number is there.
  absl::Time progress_base_;
  PlannedSave plan_;
  bool check_replicas_ = false;

  uint32_t attempt_ = 0;
  uint64_t attempt_nonce_ = 0;  // stands in the attempt's directory
  // The number came from agents that began under an earlier coordinator.
  bool adopted_ = false;
  uint64_t reserve_ticket_ = 0;
  absl::Time reserve_time_ = absl::InfiniteFuture();

  absl::Time first_failure_ = absl::InfiniteFuture();

  uint64_t manifest_ticket_ = 0;
  absl::Time manifest_time_ = absl::InfiniteFuture();
  std::optional<MadeManifest> manifest_;
  // Replicas of tensors differed, which does not end the save.
  absl::Status warning_;
  // The ticket of the last put that was not answered; 0 for none. Answers to those before it count too if they say what
  // stands.
  uint64_t verdict_ticket_ = 0;
  bool verdict_ticket_is_manifest_ = false;
  // A manifest was handed over to be put: only what stands in storage decides from now on.
  bool decided_ = false;
  absl::Time decided_time_ = absl::InfiniteFuture();
  // A put of the manifest failed in a way that leaves open whether it stands.
  bool in_doubt_ = false;
  // Why a tombstone is put though the save was decided: a person gave it up, or its files are gone.
  absl::Status given_up_;
  absl::Status stalled_;

  absl::Status error_;
  absl::Time abort_time_ = absl::InfiniteFuture();
  bool tombstone_stands_ = false;
  absl::Time next_verdict_try_ = absl::InfinitePast();
  uint64_t remove_ticket_ = 0;
  absl::Time remove_time_ = absl::InfiniteFuture();
  std::optional<Leftover> leftover_;
  VerdictSummary verdict_;
  int owed_answered_ = 0;
};

std::string_view SavePhaseName(Save::Phase phase);

}  // namespace cairn

#endif  // CAIRN_COORDINATOR_SAVE_SAVE_H_

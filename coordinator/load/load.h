// One collective load is an operation that takes one call of each rank. loads.h decides which calls belong to it.
//
//   COLLECTING --all begun, step found, planned--> READING --all done--> DONE
//        \__________________________________________/--> FAILED, to all ranks in it alike
//
// If fingerprints are to be compared, that is done between the last rank's end and DONE.
// Reading changes nothing in storage, so a failed load needs no outcome there. A reshard is a load whose source is what
// the ranks hold in memory.
#ifndef CAIRN_COORDINATOR_LOAD_LOAD_H_
#define CAIRN_COORDINATOR_LOAD_LOAD_H_

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "cairn/v1/agent_coordination_service.pb.h"
#include "cairn/v1/checkpoint_service.pb.h"
#include "coordinator/decision/awaited_rank.h"
#include "coordinator/decision/job_context.h"
#include "coordinator/decision/rank_error.h"
#include "coordinator/decision/shown_ranks.h"
#include "coordinator/exchange/groups.h"
#include "coordinator/membership/counted_ranks.h"
#include "coordinator/membership/news.h"
#include "coordinator/timeline/operation_timeline.h"

namespace cairn {

inline bool HasFailed(const v1::LoadState& state) {
  return state.phase() == v1::Phase::FAILED || state.phase() == v1::Phase::STOPPED;
}

// A function of reports, results and `context.now`. Not thread-safe.
class Load {
 public:
  // `id` counts the operations of the job. `inherited_plan` is empty for an operation that begins now. If it began
  // under an earlier coordinator, it is the plan by which ranks read already.
  // `wall` is only shown to people.
  Load(uint64_t id, std::string inherited_plan, absl::Time now, absl::Time wall)
      : id_(id),
        inherited_plan_(std::move(inherited_plan)),
        created_(now),
        progress_base_(now),
        timeline_(std::make_shared<OperationTimeline>(v1::Timeline::LOAD, now, wall)) {}

  uint64_t id() const { return id_; }
  absl::Time created() const { return created_; }
  v1::Phase::Value phase() const { return phase_; }
  // Nothing while only "the latest" is wanted, and for a reshard or an import.
  std::optional<int64_t> wanted_step() const;
  // Returns whether it reads this step, wants it, or has begun to look for the one that it takes.
  bool MayRead(int64_t step) const;
  bool ended() const { return phase_ == v1::Phase::DONE || phase_ == v1::Phase::FAILED; }
  const absl::Status& error() const { return error_; }

  // Returns whether `state` is the rank's call in this operation: its trainer and the trainer's own number for it name
  // it.
  bool Has(int rank, const v1::LoadState& state) const;
  // Returns whether `state`, which is in no operation, may join this one: it waits for calls, and none of its calls has
  // ended.
  bool Takes(const Member& member, const v1::LoadState& state) const;
  News Join(const Member& member, const v1::LoadState& state, const JobContext& context);
  // The rank's call, with its trainer and number; null if it has none here.
  const v1::LoadState* CallOf(int rank) const;
  // Takes what the rank's agent now reports of the rank's call, if the call is in this operation. A call that the agent
  // does not report any more, or that a later call of its trainer follows, was given up.
  News Follow(const Member& member, const JobContext& context);
  // Says that the rank's agent has come, is lost, or has another trainer.
  News OnMember(int rank, const JobContext& context);
  // Takes every step that follows from the state and the time. It looks at every rank; see Save::Advance for when, and
  // for its news. `damaged`: see PlanLoad.
  News Advance(const JobContext& context, const std::set<int64_t>& damaged);
  // The step in whose files at the root this load has found damage; nothing if there is none.
  std::optional<int64_t> damaged_step() const;
  void Fail(const absl::Status& error, const JobContext& context);
  void OnPlanned(uint64_t ticket, const absl::StatusOr<PlannedLoad>& plan, const JobContext& context);
  // `tensors`: how many are the checkpoint's, or why some are not.
  void OnVerified(uint64_t ticket, const absl::StatusOr<uint64_t>& tensors, const JobContext& context);

  // The order for a call that is in this operation.
  v1::LoadOrder OrderFor(const v1::LoadState& state) const;
  // The load as people see it, with the ranks of `shown`.
  v1::Load View(const JobContext& context, const ShownRanks& shown) const;
  NoteworthyRanks Noteworthy(const JobContext& context) const;

 private:
  struct Rank {
    enum Mark { kBegun, kDone, kFailed, kStaged, kReading, kResharding, kWithStep, kMarks };  // kReading: or done
    uint32_t marks() const;

    bool begun = false;
    uint64_t agent = 0;
    v1::LoadState state;
    absl::Time progress = absl::InfinitePast();
    AwaitedRank awaited;
  };

  // What all ranks are told alike, and how far the load is.
  struct Told {
    v1::Phase::Value phase = v1::Phase::COLLECTING;
    ExchangeWay::Kind way = ExchangeWay::Kind::kNone;

    bool operator==(const Told&) const = default;
  };
  Told told() const { return {phase_, way_.kind}; }

  News Update(int index, const v1::LoadState& state, const JobContext& context);
  // Writes into the timeline what the rank's agent has reported.
  void Record(int rank, const v1::LoadState& state, absl::Time now);
  // The bytes come from the ranks' memory instead of a checkpoint.
  bool IsReshard() const { return ranks_.count(Rank::kResharding) > 0; }
  Operation operation() const { return {IsReshard() ? "reshard" : "load", wanted_step(), 0}; }
  bool has_plan() const { return !plan_.plan_digest.empty(); }
  bool AllBegun(const JobContext& context) const;
  v1::Phase::Value PhaseOf(const Rank& rank) const;
  absl::Time ProgressOf(int rank, const JobContext& context) const;
  std::vector<int> Awaited(const JobContext& context) const;
  // The ranks that owe bytes to others, or for whose call others wait.
  std::vector<int> Owing(const JobContext& context) const;
  std::vector<NamedRank> NamedRanks(const std::vector<int>& ranks, const JobContext& context) const;
  // Looks at one rank's agent and trainer. While a rank has not begun, its agent counts only when it was heard since
  // the load exists. One that was not may be dead since the job's last run, and its successor is waited for.
  std::optional<MemberFault> LookAt(int index, const JobContext& context);
  bool CheckMembers(const JobContext& context);
  bool CheckErrors(const JobContext& context);
  // Adds to `error` which step to load instead, if the error is damage of the checkpoint.
  absl::Status WithOlderStep(absl::Status error, const JobContext& context) const;
  // Returns whether every agent has said what it holds to a coordinator that has restarted.
  bool AnswersAreIn(const JobContext& context) const;
  // Returns whether all ranks may still come into an operation that began under an earlier coordinator.
  bool CheckInherited(const JobContext& context);
  bool CheckAgreement(const JobContext& context);
  // See PlanLoad::calls_digest.
  std::string CallsDigest() const;
  // Returns whether the ranks that read already do it with this token, so that others can join them.
  bool ReadsWith(const std::string& token_digest) const;
  // Returns whether each rank lends what others take of it.
  bool AllLend() const { return ranks_.all(IsReshard() ? Rank::kStaged : Rank::kReading); }
  // Decides by which transport the bytes go, as far as that can be said now. False: the load cannot go on.
  bool CheckExchange(const JobContext& context);
  bool TakeWay(ExchangeWay way, const JobContext& context);
  void AddExchange(v1::LoadOrder& order) const;
  // Returns the name by which it has its group.
  std::string group_user() const { return absl::StrCat("load ", id_); }
  // Unspecified while it is not decided, and if NCCL is not wanted.
  v1::Transport exchange_transport() const;
  void AdvanceOnce(const JobContext& context, const std::set<int64_t>& damaged);
  void Plan(const JobContext& context, const std::set<int64_t>& damaged);
  // Has compared what all ranks hold now.
  void Verify(const JobContext& context);
  void SetPhase(v1::Phase::Value phase, const JobContext& context);
  // See LoadOrder.line. It is made of the first rank's call, so a coordinator that restarts names the same line.
  uint64_t Line() const;
  // Frees what an ended load does not need any more.
  void Drop();

  const uint64_t id_;
  std::string inherited_plan_;
  const absl::Time created_;
  // True while all its calls stood in the first reports of their agents: they may have begun under an earlier
  // coordinator.
  bool may_be_inherited_ = true;
  v1::Phase::Value phase_ = v1::Phase::COLLECTING;
  CountedRanks<Rank> ranks_;
  Told told_;  // when Advance was called last

  absl::Time progress_base_;
  absl::Time first_failure_ = absl::InfiniteFuture();
  uint64_t ticket_ = 0;
  PlannedLoad plan_;
  uint64_t verify_ticket_ = 0;
  std::optional<uint64_t> verified_tensors_;  // set when fingerprints were compared
  // How the bytes go that cannot go through shared memory.
  ExchangeWay way_;
  // Since when the group of an exchange that goes on has been gone.
  absl::Time group_lost_ = absl::InfiniteFuture();
  absl::Status error_;
  uint64_t storage_bytes_ = 0;
  v1::IoPath io_path_ = v1::IO_PATH_UNSPECIFIED;
  const std::shared_ptr<OperationTimeline> timeline_;
};

}  // namespace cairn

#endif  // CAIRN_COORDINATOR_LOAD_LOAD_H_

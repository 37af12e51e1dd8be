// The saves of this rank: what its trainer asks of them, what the coordinator orders, and what the writer reports.
#ifndef CAIRN_AGENT_SESSION_RANK_SAVES_H_
#define CAIRN_AGENT_SESSION_RANK_SAVES_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "agent/session/asked_saves.h"
#include "agent/session/ended_saves.h"
#include "agent/session/rank_plans.h"
#include "agent/session/rank_save.h"
#include "agent/session/rank_slab.h"
#include "agent/session/session_context.h"
#include "cairn/v1/agent_coordination_service.pb.h"
#include "cairn/v1/local_agent_service.pb.h"

namespace cairn {

// A pure function of calls and `now`. Not thread-safe.
class RankSaves {
 public:
  // All must outlive it.
  RankSaves(SessionContext& context, RankPlans& plans, RankSlab& slab)
      : context_(context), plans_(plans), slab_(slab), next_save_(context.options.incarnation | 1) {}

  // --- With the trainer, which is attached. Errors are those of LocalAgentService.

  // `layout`: the one that the request names.
  absl::StatusOr<v1::BeginSaveResponse> Begin(const v1::BeginSaveRequest& request, const RankLayoutPtr& layout,
                                              absl::Time now);
  // How many saves have been begun.
  uint64_t begun() const { return begun_; }
  absl::Status CommitStaging(const v1::CommitStagingRequest& request);
  // Returns the save with this id if this trainer stages it now. Errors: as CommitStaging.
  absl::StatusOr<RankSave*> FindStaging(uint64_t id, uint64_t trainer);
  absl::StatusOr<v1::WaitSaveResponse> Wait(const v1::WaitSaveRequest& request);
  absl::Status Cancel(const v1::CancelSaveRequest& request);
  // This trainer is not asked about any more.
  void ForgetQuestions(uint64_t trainer) { asked_.TrainerGone(trainer); }
  // Saves that the trainer has not staged yet fail with `error`.
  void OnTrainerLost(uint64_t trainer, const absl::Status& error);

  // --- With the coordinator.

  // Adds what the coordinator is told. Orders are understood as an answer to what was added last.
  void AddTo(v1::AgentState& state);
  // Takes all orders of one answer. Advance follows.
  void Obey(const google::protobuf::RepeatedPtrField<v1::SaveOrder>& orders);

  // The coordinator has no room for this layout: what waits for its plan fails with `error`.
  void OnLayoutRefused(const std::string& digest, const absl::Status& error);

  // --- With writer and clock.

  // `waiting_for`: ranks that have not staged what this one writes for them.
  void OnWriteProgress(uint64_t save, uint64_t bytes_done, std::vector<uint32_t> waiting_for = {});
  void OnWriteEnded(uint64_t save, absl::StatusOr<v1::WriteResult> result);
  // Ends the saves whose deadline has passed.
  void OnTick(absl::Time now);
  // Takes every step that has become possible.
  void Advance();

  // None goes on, and none is to be told to the coordinator but as a question.
  bool empty() const { return saves_.empty(); }
  // Returns how many saves have had an outcome.
  uint64_t ended() const { return ended_.count(); }
  // True while a staged save has no outcome: what a drain waits for.
  bool HoldsStaged() const;
  // True while the slab holds what is not written yet, or may have to be written again.
  bool HoldsSlab() const;
  // Says whose save holds the slab, for an error: "the save of step 40 (writing)".
  std::string SlabHolders() const;
  bool Uses(const std::string& layout_digest) const;

 private:
  RankSave* Find(int64_t step);
  RankSave* FindById(uint64_t id);
  // Returns whether a call for the step of `save` has to wait for the save's end: it is not the call that began it,
  // repeated, and may not take its place. Ends a save that was given up without a word.
  bool IsNextCall(RankSave& save, const v1::BeginSaveRequest& request);
  // Lets the next call of a step wait. Errors: why its time is over.
  absl::Status AwaitTurn(RankSave& save, const v1::BeginSaveRequest& request, absl::Time now);
  // The error of a save that failed, to be told now; OK if the coordinator may still say more.
  absl::Status ErrorToTell(RankSave& save, absl::Time now) const;
  // SAVE_IN_PROGRESS, or what keeps the agent from its coordinator, if too many failed saves wait to be heard of.
  absl::Status CheckRoom() const;
  // Answers for a save that this agent does not know what the coordinator says of it. NOT_FOUND (NOT_COMMITTED): the
  // coordinator does not know it either.
  absl::StatusOr<v1::WaitSaveResponse> AskFor(const v1::WaitSaveRequest& request);
  absl::Status UnknownSave(int64_t step) const;
  void Fail(RankSave& save, absl::Status error);
  // Why this save, which has not staged within its timeout, fails.
  absl::Status WhyLate(RankSave& save, absl::Time now) const;
  // The error of a save whose plan did not come in time, for a reason that is not another rank's.
  absl::Status LateBecauseOf(const absl::Status& stalled, const RankSave& save) const;
  // Adds to the error of a write which rank and step it is of, and which rank is at fault.
  absl::Status WriteError(const absl::Status& error, int64_t step) const;
  // STORAGE_STALLED if it is storage that keeps `waiting` from being staged; else OK.
  absl::Status StalledStorage(const RankSave& waiting) const;

  void Apply(const v1::SaveOrder& order);
  void Abort(RankSave& save, const v1::SaveOrder& order);
  void End(RankSave& save, const v1::SaveOrder& outcome);
  // The save is committed: loads may take its files from the slab, if they stand there as they were written.
  void KeepSlab(const RankSave& save, const v1::SaveOrder& outcome);
  // `error`: of one that was aborted.
  v1::Checkpoint CheckpointOf(const v1::SaveOrder& outcome, const absl::Status& error) const;
  void StopWriter(const RankSave& save);
  void Advance(RankSave& save);
  void OpenSlab(RankSave& save);
  // Takes over the order's plan. True if the save is to be written by what is its target then.
  bool FollowPlan(RankSave& save);
  void Write(RankSave& save);
  // Tells the writer how shards move, if it was told something else.
  void DecideMoves(RankSave& save);

  SessionContext& context_;
  RankPlans& plans_;
  RankSlab& slab_;
  // Saves have numbers that no other process of this rank gives: a trainer may ask the next agent for one of the last.
  uint64_t next_save_;
  uint64_t next_call_ = 1;
  uint64_t next_staging_ = 1;
  uint64_t begun_ = 0;
  // The first item that the next save may sample.
  uint32_t next_sample_ = 0;
  std::map<int64_t, RankSave> saves_;  // by step
  std::map<int64_t, uint64_t> told_;   // what AddTo added last: step -> id
  EndedSaves ended_;
  AskedSaves asked_;
  // The save whose writer runs, though the save may have ended.
  std::optional<uint64_t> writer_;
  bool writer_stopping_ = false;
};

}  // namespace cairn

#endif  // CAIRN_AGENT_SESSION_RANK_SAVES_H_

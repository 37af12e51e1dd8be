// One job, with its members, its saves and loads, and the requests for saves from outside.
#ifndef CAIRN_COORDINATOR_JOB_JOB_H_
#define CAIRN_COORDINATOR_JOB_JOB_H_

#include <list>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "cairn/v1/agent_coordination_service.pb.h"
#include "cairn/v1/checkpoint_service.pb.h"
#include "coordinator/decision/job_context.h"
#include "coordinator/decision/plan_table.h"
#include "coordinator/job/current_plan.h"
#include "coordinator/job/order_book.h"
#include "coordinator/job/save_request.h"
#include "coordinator/job/wanted_layouts.h"
#include "coordinator/load/loads.h"
#include "coordinator/membership/membership.h"
#include "coordinator/save/save.h"
#include "coordinator/save/step_agreement.h"

namespace cairn {

// Names the checkpoint that a call is about, by its step, else by its request, else the latest committed one.
struct CheckpointKey {
  std::optional<int64_t> step;
  std::string request_id;
};

// A function of events and time. Not thread-safe.
class Job {
 public:
  // What it is given besides its name must outlive it.
  Job(std::string name, const DecisionOptions& options, LayoutTable& layouts, Effects& effects, absl::Time now);
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  const std::string& name() const { return name_; }
  uint64_t revision() const { return revision_; }
  const Membership& members() const { return members_; }
  // This number grows whenever the orders of `rank` may have changed for another reason than its agent's own report.
  uint64_t orders_version(int rank) const { return orders_.version(rank); }
  // The ranks whose orders may have changed since the last call, for another reason than their own reports.
  OrderBook::Woken TakeWoken() { return orders_.TakeWoken(); }
  // Nothing would be lost if the job were forgotten.
  bool idle() const;
  bool busy() const;
  absl::Time last_used() const { return last_used_; }

  // Calls of agents. The errors are those of the RPCs of AgentCoordinationService.
  absl::StatusOr<v1::RegisterAgentResponse> Register(const v1::RegisterAgentRequest& request, const Moment& moment);
  absl::Status Synchronize(const v1::SynchronizeAgentRequest& request, const Moment& moment);
  absl::Status Unregister(const v1::AgentIdentity& agent, const Moment& moment);
  // Extends the lease, at uploads and downloads. `uploaded` says that a chunk of a layout came.
  absl::Status Touch(const v1::AgentIdentity& agent, bool uploaded, const Moment& moment);
  // Says what `rank`'s agent should do. The revision is that of the last change of these orders.
  v1::SynchronizeAgentResponse OrdersFor(int rank, const Moment& moment);
  // Whether OrdersFor would give a revision of at most `known`. Costs less than to put the orders together.
  bool KnowsOrders(int rank, uint64_t known) const;

  // Calls of people. They answer nothing if the answer must wait for the recovery from storage or, with `patient`, for
  // agents that come back after the coordinator's restart.
  std::optional<absl::StatusOr<v1::Checkpoint>> Create(const v1::CreateCheckpointRequest& request, bool patient,
                                                       const Moment& moment);
  // `known_epoch` is the epoch of the coordinator that has told the caller of this request before, 0 for none. What
  // that coordinator knew may come back with the agents.
  std::optional<absl::StatusOr<v1::Checkpoint>> Get(const CheckpointKey& key, uint64_t known_epoch,
                                                    const Moment& moment);
  std::optional<absl::StatusOr<v1::Checkpoint>> Cancel(const CheckpointKey& key, const Moment& moment);
  v1::Job View(const Moment& moment) const;

  // Time has passed. The caller does this every few hundred milliseconds. `deaf`: how long in all the coordinator could
  // not listen.
  void Tick(const Moment& moment, absl::Duration deaf);
  // The bytes of this layout have come, for whichever job.
  void OnLayout(const std::string& digest, const Moment& moment);

  // Results of actions.
  void OnRecovered(const absl::StatusOr<Recovered>& recovered, const Moment& moment);
  void OnStepRead(int64_t step, uint64_t ticket, const absl::StatusOr<Recovered>& recovered, const Moment& moment);
  void OnSavePlanned(const std::string& key, const absl::StatusOr<PlannedSave>& plan, const Moment& moment);
  void OnReserved(int64_t step, uint64_t ticket, const absl::StatusOr<Reserved>& reserved, const Moment& moment);
  void OnManifest(int64_t step, uint64_t ticket, const absl::StatusOr<MadeManifest>& made, const Moment& moment);
  void OnVerdict(int64_t step, uint64_t ticket, const PutOutcome& outcome, const Moment& moment);
  void OnRemoved(int64_t step, uint64_t ticket, const absl::Status& status, const Moment& moment);
  void OnLoadPlanned(uint64_t id, uint64_t ticket, const absl::StatusOr<PlannedLoad>& plan, const Moment& moment);

  // Says what the incremental bookkeeping has missed: compares it with what follows from looking at everything. Empty
  // if it has missed nothing. `moment` is that of the last tick, because what only time brings waits for the next one.
  // For tests: it costs much.
  std::string Inconsistency(const Moment& moment);

  // Starts reading what storage knows of the job, once.
  void EnsureRecovered(const Moment& moment);
  bool recovered() const { return recovered_; }
  bool known() const { return members_.world_size() > 0 || !verdicts_.empty(); }

 private:
  // Returns the job's context, set for an event.
  JobContext& Begin(const Moment& moment);
  // Returns a copy of it for whoever only looks.
  JobContext At(const Moment& moment) const;
  void SetMoment(const Moment& moment, JobContext& context) const;
  // Says to all that depends on it that the rank's agent has come, is lost, or has another trainer.
  void OnMember(int rank, JobContext& context);
  // Looks at what a report has changed: whether Advance may have a step to take.
  bool Watch(const Member& member, const ReportChange& change, JobContext& context);
  // Whether the trainer of every rank has declared a layout.
  bool AllHaveLayouts() const;
  // Whether time alone may bring a step.
  bool restless() const;
  // What the rank's agent should do, without the revision and what dates the answer.
  v1::SynchronizeAgentResponse MakeOrders(const Member& member, const JobContext& context) const;
  void Apply(const Member& member, JobContext& context);
  // Applies the reports of all members again, after a save has ended: calls that came meanwhile begin the next one.
  void ApplyAll(JobContext& context);
  void Advance(JobContext& context);
  // Takes one step of each save and load that can. Returns whether another one may be possible now.
  bool AdvanceOperations(JobContext& context);
  void AdvanceRequests(JobContext& context);
  void RefreshOrders(JobContext& context);
  void AdvanceSweeps(JobContext& context);
  // Takes over the files that `save` has left in storage, to remove them later.
  void SweepLater(Save& save, const JobContext& context);
  void OnLost(const std::vector<int>& ranks, JobContext& context);

  Save* ActiveSave(int64_t step);
  const Save* FindSave(int64_t step, bool active) const;
  // The save of the step that began last.
  Save* LastSave(int64_t step);
  // The ended save that `state`'s call took part in, if there is one; else the save that answers the call.
  const Save* EndedSaveOf(const Member& member, const v1::SaveState& state) const;
  const Save* EndedSaveFor(const Member& member, const v1::SaveState& state) const;
  Save& NewSave(int64_t step, JobContext& context);
  bool Committed(int64_t step) const;
  void Keep(const VerdictSummary& verdict);
  std::optional<int64_t> EarliestUndecided() const;
  // The smallest step whose save is stalled.
  std::optional<int64_t> StalledStep() const;
  // Memory says that the step is committed. Does storage still say so? People may have removed the step. Answers
  // nothing while the step is being read. `caller` asks again until it is answered, and gets what was read after it had
  // first asked.
  std::optional<bool> StillCommitted(int64_t step, const std::string& caller, JobContext& context);
  // Whether `caller` was told that the step is committed.
  bool WasRefused(int64_t step, const std::string& caller) const;
  struct StepRead;
  static void ReadAgain(int64_t step, StepRead& read, JobContext& context);
  // The order for an agent that restarted and asks about an attempt of which it holds nothing: the verdict, or to wait.
  v1::SaveOrder VerdictFor(const v1::SaveState& asked, const JobContext& context) const;
  // Takes the next step to find out how that attempt ended.
  void ApplyAsked(const Member& member, const v1::SaveState& asked, JobContext& context);
  // The verdict of storage for the attempt of an agent's save; null if there is none, or if it could not be read.
  const VerdictSummary* SettledVerdict(const v1::SaveState& state) const;
  static std::string CallerOf(const Member& member, const v1::SaveState& state);
  // STORAGE_STALLED if storage has not said for too long what it knows of the job; else OK.
  absl::Status RecoveryStalled(absl::Time now) const;
  v1::SaveOrder SaveOrderFor(const Member& member, const v1::SaveState& state, const JobContext& context) const;
  absl::Status StepCommitted(int64_t step) const;
  absl::Status RootMismatch(const v1::RegisterAgentRequest& request) const;
  // Whether the trainer that the request was made for has ended. Notes the trainer if it is the rank's first one.
  static bool HasLostTrainer(SaveRequest& request, const Member& member);
  void CheckTrainers(SaveRequest& request, JobContext& context);
  void CheckRequestTime(SaveRequest& request, bool blocked, JobContext& context);
  // WORLD_INCOMPLETE: names the ranks without an agent.
  void EndAsIncomplete(SaveRequest& request, JobContext& context);
  void EndRequest(SaveRequest& request, absl::Status error, JobContext& context);
  // The save or the request with this request id; both are null if there is none.
  const VerdictSummary* FindVerdict(const CheckpointKey& key) const;
  v1::Checkpoint ViewOf(const VerdictSummary& verdict) const;
  v1::Checkpoint ViewOf(const SaveRequest& request, const JobContext& context) const;
  void Forget(absl::Time now);

  const std::string name_;
  const DecisionOptions& options_;

  Membership members_;
  PlanTable plans_;
  JobContext context_;
  StepAgreement agreement_;
  std::list<Save> saves_;  // oldest first; ended ones stay as the answer to late calls
  Loads loads_;
  uint64_t saves_begun_ = 0;
  std::list<SaveRequest> requests_;
  std::map<std::pair<int64_t, uint32_t>, VerdictSummary> verdicts_;
  std::optional<int64_t> last_committed_;

  // An attempt that nobody finished. It gets a tombstone and is removed when its agents have had the time to come back.
  struct Sweep {
    Leftover leftover;
    uint64_t ticket = 0;
    absl::Time next_try = absl::InfinitePast();
    bool done = false;
  };
  std::list<Sweep> sweeps_;

  // Reads one step again, for callers that would be refused by what memory says.
  struct StepRead {
    uint64_t ticket = 0;  // of the read under way
    absl::Time begun;
    std::set<std::string> waiting;   // for the next read
    std::set<std::string> asking;    // for the one under way
    std::set<std::string> answered;  // the step is still committed
    absl::Time answered_time = absl::InfinitePast();
  };
  std::map<int64_t, StepRead> step_reads_;
  // If a verdict could not be read, it is read again for those who ask, but not before this time.
  absl::Time next_verdict_read_ = absl::InfinitePast();

  bool recovering_ = false;
  absl::Time recovery_begun_ = absl::InfiniteFuture();
  bool recovered_ = false;
  bool agreement_recovered_ = false;
  absl::Time next_recovery_ = absl::InfinitePast();
  absl::Status recovery_error_;
  absl::Status recovery_stalled_;  // as told in orders

  CurrentPlan current_plan_;
  WantedLayouts wanted_layouts_;
  OrderBook orders_;

  uint64_t revision_ = 1;
  absl::Time next_revision_ = absl::InfinitePast();  // for what changes without end: when agents were last heard
  bool attention_ = true;                            // Advance may have a step to take
  bool apply_all_ = false;                           // so may Apply, for other members than the one that reported
  absl::Time next_forget_ = absl::InfinitePast();
  absl::Time last_used_;
};

}  // namespace cairn

#endif  // CAIRN_COORDINATOR_JOB_JOB_H_

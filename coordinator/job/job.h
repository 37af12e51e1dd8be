// One job. It brings each event to the parts that it concerns, and then lets them take, in a fixed order, every step
// that has become possible. The parts hold all that is known and decided.
#ifndef CAIRN_COORDINATOR_JOB_JOB_H_
#define CAIRN_COORDINATOR_JOB_JOB_H_

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "cairn/v1/agent_coordination_service.pb.h"
#include "cairn/v1/checkpoint_service.pb.h"
#include "cairn/v1/monitoring_service.pb.h"
#include "coordinator/decision/checkpoint_key.h"
#include "coordinator/decision/job_context.h"
#include "coordinator/decision/plan_table.h"
#include "coordinator/decision/shown_ranks.h"
#include "coordinator/exchange/groups.h"
#include "coordinator/job/checkpoints.h"
#include "coordinator/job/current_plan.h"
#include "coordinator/job/leftovers.h"
#include "coordinator/job/order_book.h"
#include "coordinator/job/outcome_book.h"
#include "coordinator/job/recovery.h"
#include "coordinator/job/save_answers.h"
#include "coordinator/job/save_requests.h"
#include "coordinator/job/step_changes.h"
#include "coordinator/job/wanted_layouts.h"
#include "coordinator/load/loads.h"
#include "coordinator/membership/membership.h"
#include "coordinator/save/saves.h"

namespace cairn {

// It is a function of events and time. Not thread-safe.
class Job {
 public:
  // `options` and `layouts` must outlive it. `layouts` are those of all jobs.
  Job(std::string name, const DecisionOptions& options, LayoutTable& layouts, absl::Time now);
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  const std::string& name() const { return name_; }
  uint64_t revision() const { return context_.revision; }
  const Membership& members() const { return members_; }
  // This number grows whenever the orders of `rank` may have changed for another reason than its agent's own report.
  uint64_t orders_version(int rank) const { return orders_.version(rank); }
  // The ranks whose orders may have changed since the last call, for another reason than their own reports.
  OrderBook::Woken TakeWoken() { return orders_.TakeWoken(); }
  bool busy() const;
  // Returns whether nothing would be lost by forgetting the job, and nobody has asked about it for a while.
  bool forgettable(absl::Time now) const;
  // Returns what the events since the last call want done and told.
  Effects TakeEffects() { return std::exchange(effects_, {}); }

  // Calls of agents. The errors are those of the RPCs of AgentCoordinationService.
  absl::StatusOr<v1::RegisterAgentResponse> Register(const v1::RegisterAgentRequest& request, const Moment& moment);
  absl::Status Synchronize(const v1::SynchronizeAgentRequest& request, const Moment& moment);
  absl::Status Unregister(const v1::AgentIdentity& agent, const Moment& moment);
  // Extends the lease, at uploads and downloads. `uploaded` says that a chunk of a layout came.
  absl::Status Touch(const v1::AgentIdentity& agent, bool uploaded, const Moment& moment);
  // Says what `rank`'s agent should do. The revision is that of the last change of these orders. `known` is that of the
  // last orders that the agent has applied, 0 for none: what it knows of these is left out, if it can do without.
  v1::SynchronizeAgentResponse OrdersFor(int rank, const Moment& moment, uint64_t known = 0);
  // Returns whether OrdersFor would give a revision of at most `known`. Costs less than to put the orders together.
  bool KnowsOrders(int rank, uint64_t known) const;

  // Calls of people. They answer nothing if the answer must wait for the recovery from storage or, with `patient`, for
  // agents that come back after the coordinator's restart.
  std::optional<absl::StatusOr<v1::Checkpoint>> Create(const v1::CreateCheckpointRequest& request, bool patient,
                                                       const Moment& moment);
  // `known_epoch` is the epoch of the coordinator that has told the caller of this request before, 0 for none. The
  // agents may bring back what that coordinator knew.
  std::optional<absl::StatusOr<v1::Checkpoint>> Get(const CheckpointKey& key, uint64_t known_epoch,
                                                    const Moment& moment);
  std::optional<absl::StatusOr<v1::Checkpoint>> Cancel(const CheckpointKey& key, const Moment& moment);
  // Takes a change of the job's steps, if `number` is 0, and sets it. Answers nothing until the change has ended and,
  // with `patient`, while files of what was deleted are being removed. `files_left`: whether some are there still. With
  // `partly` it answers what a prune has done so far, if it has stopped after a step and goes on.
  struct Changed {
    ChangedSteps steps;
    bool files_left = false;
  };
  std::optional<absl::StatusOr<Changed>> Change(const ChangeSteps& change, uint64_t& number, bool patient, bool partly,
                                                const Moment& moment);
  // Returns what stands in storage of an attempt, as people see it.
  v1::Checkpoint ViewOf(const OutcomeSummary& outcome, const Moment& moment) const;
  // The job as people see it, with the ranks of `page`; see GetJobRequest.page for what is shown without one.
  v1::Job View(const Moment& moment, const std::optional<v1::RankPage>& page = std::nullopt) const;
  // The same without a page, which many who wait share. It is a moment old at most, and of a job that is not shown
  // whole a second for 16,384 ranks, so that no number of askers keeps the coordinator busy. Its revision is above
  // `known`, unless the job's own is not.
  std::shared_ptr<const v1::Job> SharedView(const Moment& moment, int stalled_storage_calls, uint64_t known);
  // Returns the job in a few numbers.
  v1::JobSummary Summary(const Moment& moment) const;

  // Time has passed. The caller does this every few hundred milliseconds. `deaf`: how long in all the coordinator was
  // too busy to listen.
  void Tick(const Moment& moment, absl::Duration deaf);
  // The bytes of this layout have come, for whichever job.
  void OnLayout(const std::string& digest, const Moment& moment);

  // Results of actions.
  void OnRecovered(const absl::StatusOr<Recovered>& recovered, const Moment& moment);
  void OnStepRead(int64_t step, uint64_t ticket, const absl::StatusOr<Recovered>& recovered, const Moment& moment);
  void OnSavePlanned(const std::string& key, const absl::StatusOr<PlannedSave>& plan, const Moment& moment);
  void OnReserved(int64_t step, uint64_t ticket, const absl::StatusOr<Reserved>& reserved, const Moment& moment);
  void OnManifest(int64_t step, uint64_t ticket, const absl::StatusOr<MadeManifest>& made, const Moment& moment);
  void OnOutcome(int64_t step, uint64_t ticket, const PutAnswer& answer, const Moment& moment);
  void OnRemoved(int64_t step, uint64_t ticket, const absl::Status& status, const Moment& moment);
  void OnStepsChanged(uint64_t ticket, const absl::StatusOr<ChangedSteps>& changed, const Moment& moment);
  void OnLoadPlanned(uint64_t id, uint64_t ticket, const absl::StatusOr<PlannedLoad>& plan, const Moment& moment);

  // Returns what the incremental bookkeeping has missed; empty if nothing. It is compared with a look at everything, at
  // the time of the last tick or step, because later changes by time wait for the next one. Only tests call it: it
  // costs much.
  std::string Inconsistency();

  // Lets go of the oldest save plan that is kept for saves to come, and of its layouts. False if there is none.
  bool ReleaseOldestPlan() { return plans_.ReleaseOldest(); }

  // Starts reading what storage knows of the job, once.
  void EnsureRecovered(const Moment& moment);
  bool recovered() const { return recovery_.done(); }
  bool known() const { return members_.world_size() > 0 || !outcomes_.empty(); }

 private:
  friend struct BookkeepingFault;  // of tests

  // Returns the job's context, set for an event.
  JobContext& Begin(const Moment& moment);
  // Returns a copy of it for whoever only looks.
  JobContext At(const Moment& moment) const;
  void SetMoment(const Moment& moment, JobContext& context) const;

  // Returns whether Advance may have a step to take.
  bool attention() const;
  // Returns whether time alone may bring a step.
  bool restless() const;

  // Says to all that depends on it that the rank's agent has come, is lost, or has another trainer.
  void OnMember(int rank, JobContext& context);
  // `cause`: a word for the log.
  void OnLost(const std::vector<int>& ranks, std::string_view cause, JobContext& context);
  // Looks at what a report has changed.
  void Watch(const Member& member, const ReportChange& change, JobContext& context);
  // Brings the calls that the member has reported to their saves and loads.
  void Apply(const Member& member, JobContext& context);
  // Does so for all members, after a save has ended: calls that came meanwhile begin the next one.
  void ApplyAll(JobContext& context);
  // Begins the save of a call that finds none under way. Null if the call is answered otherwise, or has to wait.
  Save* BeginSave(const Member& member, const v1::SaveState& state, JobContext& context);

  // Takes every step that is possible now.
  void Advance(JobContext& context);
  // Takes one step of each save and load that can. Returns whether another one may be possible now.
  bool AdvanceOperations(JobContext& context);
  // Takes over the files that saves have left in storage, to remove them later.
  void KeepLeftovers(const JobContext& context);
  void Forget(absl::Time now);

  // Returns what the rank's agent should do, without the revision and what dates the answer.
  v1::SynchronizeAgentResponse MakeOrders(const Member& member, const JobContext& context) const;
  void RefreshOrders(JobContext& context);
  // Returns what is shown of a job that is too large to be shown whole.
  ShownRanks Noteworthy(const JobContext& context) const;
  // Returns the part whose own bookkeeping is not what a look at everything gives; empty if there is none.
  std::string MiscountedPart(const JobContext& context) const;

  const std::string name_;
  const DecisionOptions& options_;

  Membership members_;
  PlanTable plans_;
  Groups groups_;
  Effects effects_;
  uint64_t next_ticket_ = 1;
  JobContext context_;

  Recovery recovery_;
  OutcomeBook outcomes_;
  Saves saves_;
  Loads loads_;
  SaveRequests requests_;
  Leftovers leftovers_;
  StepChanges step_changes_;
  CurrentPlan current_plan_;
  WantedLayouts wanted_layouts_;
  OrderBook orders_;
  const SaveAnswers save_answers_{recovery_, outcomes_, saves_, leftovers_};
  const Checkpoints checkpoints_{recovery_, outcomes_, saves_, requests_};

  bool attention_ = true;   // for another reason than a save's or a load's own
  bool apply_all_ = false;  // Apply may have something to do for other members than the one that reported
  absl::Time next_revision_ = absl::InfinitePast();  // for what changes without end: when agents were last heard
  absl::Time next_forget_ = absl::InfinitePast();
  Moment settled_;  // when every step was taken that time had made possible
  absl::Time last_used_;
  std::shared_ptr<const v1::Job> view_;  // the last SharedView
  absl::Time viewed_ = absl::InfinitePast();
};

}  // namespace cairn

#endif  // CAIRN_COORDINATOR_JOB_JOB_H_

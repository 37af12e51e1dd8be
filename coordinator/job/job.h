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
#include "coordinator/membership/news.h"
#include "coordinator/save/saves.h"

namespace cairn {

// It is a function of events and time. Not thread-safe.
class Job {
 public:
  // All ranks, or these.
  struct Woken {
    bool all = false;
    std::vector<int> ranks;
  };

  // `options` and `layouts` must outlive it. `layouts` are those of all jobs.
  Job(std::string name, const DecisionOptions& options, LayoutTable& layouts, absl::Time now);
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  const std::string& name() const { return name_; }
  // Grows whenever what people see of the job may have changed. When agents were last heard counts once a second.
  uint64_t revision() const { return revision_; }
  const Membership& members() const { return members_; }
  bool busy() const;
  // Returns whether nothing would be lost by forgetting the job, and nobody has asked about it for a while.
  bool forgettable(absl::Time now) const;
  // Returns what the events since the last call want done and told.
  Effects TakeEffects() { return std::exchange(effects_, {}); }
  // Returns whose agents hear at once of what has changed since the last call, other than by their own reports.
  Woken TakeWoken() { return std::exchange(woken_, {}); }

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
  v1::Checkpoint ViewOf(const StoredAttempt& outcome, const Moment& moment) const;
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
  void OnRecovered(const absl::StatusOr<StoredAttempts>& recovered, const Moment& moment);
  void OnStepRead(int64_t step, uint64_t ticket, const absl::StatusOr<StoredAttempts>& recovered, const Moment& moment);
  void OnSavePlanned(const std::string& key, const absl::StatusOr<PlannedSave>& plan, const Moment& moment);
  void OnReserved(int64_t step, uint64_t ticket, const absl::StatusOr<Reserved>& reserved, const Moment& moment);
  void OnManifest(int64_t step, uint64_t ticket, const absl::StatusOr<MadeManifest>& made, const Moment& moment);
  void OnOutcome(int64_t step, uint64_t ticket, const PutAnswer& answer, const Moment& moment);
  void OnRemoved(int64_t step, uint64_t ticket, const absl::Status& status, const Moment& moment);
  void OnStepsChanged(uint64_t ticket, const absl::StatusOr<ChangedSteps>& changed, const Moment& moment);
  void OnLoadPlanned(uint64_t id, uint64_t ticket, const absl::StatusOr<PlannedLoad>& plan, const Moment& moment);
  void OnLoadVerified(uint64_t id, uint64_t ticket, const absl::StatusOr<uint64_t>& tensors, const Moment& moment);

  // Applies again what all agents have reported, and takes every step that is possible. Nothing follows from it, unless
  // an event was not taken for what it is: then this makes up for it. Tick does it every few seconds.
  void Review(const Moment& moment);

  // Lets go of the oldest save plan that is kept for saves to come, and of its layouts. False if there is none.
  bool ReleaseOldestPlan() { return plans_.ReleaseOldest(); }

  // Starts reading what storage knows of the job, once.
  void EnsureRecovered(const Moment& moment);
  bool recovered() const { return recovery_.done(); }
  bool known() const { return members_.world_size() > 0 || !outcomes_.empty(); }

 private:
  // Returns what the parts are given to look at, and with an event.
  JobContext At(const Moment& moment) const;
  JobContext Begin(const Moment& moment) const;
  // Ends an event: takes the step that may have become possible, and lets those hear who must.
  void Finish(News news, const JobContext& context);
  void Tell(const News& news, const JobContext& context);

  // Says to all that depends on it that the rank's agent has come, is lost, or has another trainer.
  News OnMember(int rank, const JobContext& context);
  // `cause`: a word for the log.
  News OnLost(const std::vector<int>& ranks, std::string_view cause, const JobContext& context);
  // Looks at what a report has changed.
  News Watch(const Member& member, const ReportChange& change, const JobContext& context);
  // Brings the calls that the member has reported to their saves and loads.
  News Apply(const Member& member, const JobContext& context);
  // Does so for all members, after a save or load has ended: calls that came meanwhile begin the next one.
  News ApplyAll(const JobContext& context);
  // Begins the save of a call that finds none under way. Null if the call is answered otherwise, or has to wait.
  Save* BeginSave(const Member& member, const v1::SaveState& state, const JobContext& context, News& news);

  // Takes every step that is possible now.
  News Advance(JobContext context);
  // Takes the steps of saves and loads. There is a step in its news if another one may be possible now.
  News AdvanceOperations(const JobContext& context);
  // Takes over the files that saves have left in storage, to remove them later.
  void KeepLeftovers(const JobContext& context);
  void Forget(absl::Time now);

  // Returns what the rank's agent should do, without the revision and what dates the answer.
  v1::SynchronizeAgentResponse MakeOrders(const Member& member, const JobContext& context) const;
  // Returns what is shown of a job that is too large to be shown whole.
  ShownRanks Noteworthy(const JobContext& context) const;

  const std::string name_;
  const DecisionOptions& options_;

  Membership members_;
  PlanTable plans_;
  Groups groups_;
  Effects effects_;
  uint64_t next_ticket_ = 1;
  const JobContext base_;  // of every event

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

  Woken woken_;
  uint64_t revision_ = 1;
  uint64_t ended_applied_ = 0;  // the saves and loads that had ended when ApplyAll was called for them
  absl::Time next_heard_ = absl::InfinitePast();
  absl::Time next_forget_ = absl::InfinitePast();
  absl::Time next_review_ = absl::InfinitePast();
  absl::Time last_used_;
  std::shared_ptr<const v1::Job> view_;  // the last SharedView
  absl::Time viewed_ = absl::InfinitePast();
};

}  // namespace cairn

#endif  // CAIRN_COORDINATOR_JOB_JOB_H_

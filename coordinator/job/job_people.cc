// Answers what people ask of a job.
#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/base/time_proto.h"
#include "common/format/checkpoint_path.h"
#include "common/status/reason.h"
#include "coordinator/job/job.h"

namespace cairn {
namespace {

constexpr size_t kMaxRequestIdBytes = 128;
constexpr size_t kMaxReasonBytes = 64;
constexpr size_t kMaxNamedRanks = 8;
// The times in a view, as when an agent was last heard, may be so old.
constexpr absl::Duration kSharedFor = absl::Milliseconds(100);
// A view looks at every rank, which takes about 3 us each. So those of a large job take a twentieth of a core.
constexpr absl::Duration kSharedForEachRank = absl::Microseconds(60);

absl::Status CheckRequest(const v1::CreateCheckpointRequest& request, const JobContext& context) {
  if (request.request_id().empty() || request.request_id().size() > kMaxRequestIdBytes) {
    return MakeError(Reason::kBadRequest, absl::StrCat("a request id of 1 to ", kMaxRequestIdBytes, " bytes is needed"),
                     {{"job", context.job}});
  }
  const std::string& reason = request.reason();
  if (reason.size() > kMaxReasonBytes || !std::all_of(reason.begin(), reason.end(), [](char c) {
        return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '_';
      })) {
    return MakeError(
        Reason::kBadRequest,
        absl::StrCat("the reason of a save is a word of at most ", kMaxReasonBytes, " letters, digits, '-' and '_'"),
        {{"job", context.job}});
  }
  return request.has_step() ? CheckStep(request.step()) : absl::OkStatus();
}

// Without any trainer, nobody reports a step that the job could agree on, and nobody will call save.
absl::Status CheckTrainers(const JobContext& context) {
  for (const auto& [rank, member] : context.members.members()) {
    if (!member.reported || member.state.trainer().attached()) return absl::OkStatus();
  }
  // After a restart of the coordinator, the other agents may have trainers.
  if (!context.members.complete() && context.now - context.started < context.options.lease_ttl) return absl::OkStatus();
  const size_t agents = context.members.size();
  return MakeError(
      Reason::kStepRefused,
      absl::StrCat(context.job, ": no training process is attached to ",
                   agents == 1 ? "its agent" : absl::StrCat("any of its ", agents, " agents"),
                   ", so there is nothing to save"),
      {{"job", context.job},
       {"next", absl::StrCat("Start the training processes and let each call cairn.connect(); `cairn status ",
                             context.job, "` shows which ranks have a trainer.")}});
}

}  // namespace

std::optional<absl::StatusOr<v1::Checkpoint>> Job::Create(const v1::CreateCheckpointRequest& request, bool patient,
                                                          const Moment& moment) {
  const JobContext context = Begin(moment);
  recovery_.Begin(context);
  last_used_ = context.now;
  if (absl::Status status = CheckRequest(request, context); !status.ok()) return status;
  if (!recovery_.done()) {
    if (!recovery_.error().ok() && !patient) return recovery_.error();
    return std::nullopt;
  }
  // The request may be a repeated one: in flight, ended since the start, or ended before.
  const CheckpointKey key{std::nullopt, request.request_id()};
  if (checkpoints_.Knows(request.request_id())) return checkpoints_.Find(key, 0, At(moment));
  if (request.has_step() && !context.lineage->superseded().contains(request.step())) {
    const auto still =
        outcomes_.StillCommitted(request.step(), absl::StrCat("request ", request.request_id()), context);
    if (!still.has_value()) return std::nullopt;
    if (*still) return OutcomeBook::CommittedError(request.step(), context);
  }
  if (members_.empty()) {
    // After a restart of the coordinator, agents come back by themselves. So the job is not unknown before they have
    // had the time.
    if (patient && context.now - context.started < options_.lease_ttl) return std::nullopt;
    return MakeError(Reason::kJobNotFound, absl::StrCat("no agent of job ", name_, " is registered"), {{"job", name_}});
  }
  if (!saves_.busy() && !request.for_trainer()) {
    if (absl::Status status = CheckTrainers(context); !status.ok()) return status;
  }
  if (absl::Status status = requests_.Add(request, saves_, context); !status.ok()) return status;
  Finish(News::Step(), context);
  return checkpoints_.Find(key, 0, At(moment));
}

std::optional<absl::StatusOr<v1::Checkpoint>> Job::Get(const CheckpointKey& key, uint64_t known_epoch,
                                                       const Moment& moment) {
  const JobContext context = At(moment);
  recovery_.Begin(context);
  last_used_ = context.now;
  if (key.step.has_value()) {
    if (absl::Status status = CheckStep(*key.step); !status.ok()) return status;
  }
  return checkpoints_.Find(key, known_epoch, context);
}

std::optional<absl::StatusOr<v1::Checkpoint>> Job::Cancel(const CheckpointKey& key, const Moment& moment) {
  const JobContext context = Begin(moment);
  saves_.Cancel(key, context);
  requests_.Cancel(key, context);
  Finish(News::Step(), context);
  return Get(key, 0, moment);
}

std::optional<absl::StatusOr<Job::Changed>> Job::Change(const ChangeSteps& change, uint64_t& number, bool patient,
                                                        bool partly, const Moment& moment) {
  const JobContext context = Begin(moment);
  recovery_.Begin(context);
  last_used_ = context.now;
  if (!recovery_.done()) {
    if (!recovery_.error().ok() && !patient) return recovery_.error();
    return std::nullopt;
  }
  if (number == 0) {
    const absl::StatusOr<uint64_t> asked = step_changes_.Ask(change, context);
    if (!asked.ok()) return asked.status();
    number = *asked;
    Finish(News::Step(), context);
  }
  const absl::StatusOr<ChangedSteps>* result = step_changes_.Find(number);
  if (result == nullptr) {
    const ChangedSteps* so_far = partly ? step_changes_.SoFar(number) : nullptr;
    if (so_far == nullptr) return std::nullopt;
    return Changed{*so_far, /*files_left=*/true};
  }
  if (!result->ok()) return result->status();
  Changed changed{**result};
  for (const StoredAttempt& deleted : changed.steps.deleted) {
    if (patient && leftovers_.Removing(deleted.step, deleted.attempt)) return std::nullopt;
    changed.files_left = changed.files_left || leftovers_.Contains(deleted.step, deleted.attempt);
  }
  return changed;
}

v1::Checkpoint Job::ViewOf(const StoredAttempt& outcome, const Moment& moment) const {
  return ViewOfOutcome(outcome, At(moment));
}

v1::JobSummary Job::Summary(const Moment& moment) const {
  v1::JobSummary summary;
  summary.set_job(name_);
  summary.set_world_size(static_cast<uint32_t>(members_.world_size()));
  summary.set_agents(static_cast<uint32_t>(members_.size()));
  uint32_t trainers = 0, halted = 0;
  for (const auto& [rank, member] : members_.members()) {
    trainers += member.has_trainer() ? 1 : 0;
    halted += member.halted() ? 1 : 0;
  }
  summary.set_trainers(trainers);
  summary.set_trainers_halted(halted);
  summary.set_saves_running(static_cast<uint32_t>(saves_.running()));
  summary.set_loads_running(static_cast<uint32_t>(loads_.running()));
  const absl::Time oldest = std::min(saves_.oldest_running(), loads_.oldest_running());
  if (oldest < moment.now) SetDuration(moment.now - oldest, *summary.mutable_oldest_running());
  const std::optional<int64_t> committed = outcomes_.last_committed();
  if (committed.has_value()) summary.set_last_committed_step(*committed);
  if (const Leftovers::Due due = leftovers_.DueRemovals(At(moment)); due.attempts > 0) {
    summary.set_removals_due(due.attempts);
    summary.set_removals_refused(due.refused);
    SetDuration(due.delay, *summary.mutable_removal_delay());
  }
  return summary;
}

ShownRanks Job::Noteworthy(const JobContext& context) const {
  const NoteworthyRanks save = checkpoints_.Noteworthy(context);
  const NoteworthyRanks loads = loads_.Noteworthy(context);
  // The first ones are shown, so the order says what matters most.
  std::vector<int> ranks = save.late;
  const auto add = [&](const std::vector<int>& more) { ranks.insert(ranks.end(), more.begin(), more.end()); };
  add(loads.late);
  if (!members_.complete()) add(members_.Absent());
  std::vector<int> idle;
  for (const auto& [rank, member] : members_.members()) {
    if (context.now - member.heard > options_.lease_ttl / 2 || member.halted()) ranks.push_back(rank);
    if (!member.has_trainer()) idle.push_back(rank);
  }
  add(idle);
  add(save.awaited);
  add(loads.awaited);
  return ShownRanks::Of(ranks);
}

v1::Job Job::View(const Moment& moment, const std::optional<v1::RankPage>& page) const {
  const JobContext context = At(moment);
  const auto world_size = static_cast<uint32_t>(members_.world_size());
  v1::Job view;
  view.set_job(name_);
  view.set_world_size(world_size);
  view.set_coordinator_epoch(options_.coordinator_epoch);
  view.set_membership_epoch(members_.epoch());
  view.set_revision(context.revision);
  view.set_agents(static_cast<uint32_t>(members_.size()));
  const bool whole = ShownRanks::FitsWhole(world_size);
  const ShownRanks shown = page.has_value() ? ShownRanks::Page(*page) : whole ? ShownRanks::All() : Noteworthy(context);
  view.set_ranks_left_out(page.has_value() ? !shown.IsAllOf(members_.world_size()) : !whole);
  if (page.has_value() && shown.end() < members_.world_size()) view.set_next_rank(static_cast<uint32_t>(shown.end()));
  uint32_t trainers = 0;
  for (const auto& [rank, member] : members_.members()) {
    const bool attached = member.has_trainer();
    const std::optional<int64_t> step = member.current_step();
    trainers += attached ? 1 : 0;
    if (step.has_value() && (!view.has_lowest_step() || *step < view.lowest_step())) view.set_lowest_step(*step);
    if (step.has_value() && (!view.has_highest_step() || *step > view.highest_step())) view.set_highest_step(*step);
    if (!shown.contains(rank)) continue;
    v1::JobRank& entry = *view.add_ranks();
    entry.set_rank(static_cast<uint32_t>(rank));
    entry.set_node(member.node);
    entry.set_address(member.transfer_address);
    entry.set_trainer_attached(attached);
    if (step.has_value()) {
      entry.set_current_step(*step);
      SetDuration(context.now - member.stepped, *entry.mutable_trainer_step_age());
    }
    if (const auto process = member.state.trainer().process(); process != v1::JobRank::TRAINER_PROCESS_UNSPECIFIED) {
      entry.set_trainer_process(process);
      SetDuration(context.now - member.process_since, *entry.mutable_trainer_process_age());
    }
    SetDuration(context.now - member.heard, *entry.mutable_last_heard());
  }
  view.set_trainers(trainers);
  const std::vector<int> awaited = current_plan_.Awaited(members_);
  view.set_layouts_awaited(static_cast<uint32_t>(awaited.size()));
  for (size_t i = 0; i < std::min(awaited.size(), kMaxNamedRanks); ++i) {
    view.add_layout_awaited_ranks(static_cast<uint32_t>(awaited[i]));
  }
  if (auto checkpoint = checkpoints_.Shown(context, shown); checkpoint.has_value()) {
    *view.mutable_checkpoint() = *std::move(checkpoint);
  }
  loads_.View(context, shown, view);
  return view;
}

std::shared_ptr<const v1::Job> Job::SharedView(const Moment& moment, int stalled_storage_calls, uint64_t known) {
  const auto stalled = static_cast<uint32_t>(stalled_storage_calls);
  const absl::Duration age = moment.now - viewed_;
  const bool usable = view_ != nullptr && view_->stalled_storage_calls() == stalled;
  const bool same = usable && view_->revision() == revision_ && age < kSharedFor;
  const bool recent = usable && view_->ranks_left_out() && view_->revision() > known &&
                      age < members_.world_size() * kSharedForEachRank;
  if (same || recent) return view_;
  auto view = std::make_shared<v1::Job>(View(moment));
  view->set_stalled_storage_calls(stalled);
  view_ = std::move(view);
  viewed_ = moment.now;
  return view_;
}

}  // namespace cairn

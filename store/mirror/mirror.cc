#include "store/mirror/mirror.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "common/base/duration_text.h"
#include "common/format/checkpoint_path.h"
#include "common/process/log.h"
#include "common/resources/memory.h"
#include "common/resources/thread.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "common/status/status_proto.h"
#include "store/mirror/step_copy.h"
#include "store/read/listed_checkpoint.h"
#include "store/read/stored_jobs.h"
#include "store/write/deletion_store.h"

namespace cairn {
namespace {

constexpr std::string_view kOwnDirectory = ".cairn";
constexpr uint64_t kMaxOwnerBytes = 4096;

// A job is looked at so often though nothing is known to have changed: somebody may have changed the mirror.
constexpr absl::Duration kLookEach = absl::Minutes(10);
// So often it is looked whether a load still reads a deleted copy.
constexpr absl::Duration kCleanRetry = absl::Seconds(5);
// Pins and tags have a line of text.
constexpr uint64_t kMaxMarkBytes = 4096;

const StepRecord* FindStep(const std::vector<StepRecord>& steps, int64_t step) {
  const auto found =
      std::lower_bound(steps.begin(), steps.end(), step, [](const StepRecord& a, int64_t b) { return a.step < b; });
  return found == steps.end() || found->step != step ? nullptr : &*found;
}

bool Contains(const std::vector<int64_t>& steps, int64_t step) {
  return std::find(steps.begin(), steps.end(), step) != steps.end();
}

// Says why the mirror cannot take the attempt of a closed step; OK if a person or a rule has deleted its copy there.
absl::Status WhyClosed(const MirrorStep& step, const StepRecord& mirror, const std::string& job,
                       const std::string& address) {
  if (!mirror.unlisted.ok()) return mirror.unlisted;
  for (const StoredAttempt& attempt : mirror.attempts) {
    if (attempt.attempt != step.attempt) continue;
    if (attempt.deleted) return absl::OkStatus();
    if (attempt.damaged) return attempt.error;
  }
  return MakeError(Reason::kStepCommitted,
                   absl::StrCat("the mirror ", address, " has another checkpoint of ", job, "@", step.step,
                                " under attempt ", step.attempt, " or a later one"),
                   {{"job", job},
                    {"step", absl::StrCat(step.step)},
                    {"next", "Use a mirror that belongs to this root alone: another root was copied there."}});
}

}  // namespace

Mirror::Mirror(MirrorOptions options, CheckpointStore& root, const Clock& clock)
    : options_(std::move(options)), root_(root), clock_(clock), started_(clock.SteadyNow()) {}

Mirror::~Mirror() {
  if (thread_.joinable()) thread_.join();
}

absl::Status Mirror::Start() {
  {
    MutexLock lock(mutex_);
    ended_ = false;
  }
  auto thread = StartThread("to copy checkpoints to the mirror", [this] { Run(); });
  if (thread.ok()) {
    thread_ = *std::move(thread);
    return absl::OkStatus();
  }
  MutexLock lock(mutex_);
  ended_ = true;
  return thread.status();
}

bool Mirror::Stop(absl::Duration patience) {
  stop_ = true;
  const absl::Time deadline = clock_.SteadyNow() + patience;
  {
    MutexLock lock(mutex_);
    changed_.NotifyAll();
    while (!ended_) {
      const absl::Duration left = deadline - clock_.SteadyNow();
      if (left <= absl::ZeroDuration()) return false;
      changed_.WaitFor(mutex_, left);
    }
  }
  if (thread_.joinable()) thread_.join();
  return true;
}

void Mirror::Look(const std::string& job) {
  MutexLock lock(mutex_);
  if (std::find(due_.begin(), due_.end(), job) == due_.end()) due_.push_back(job);
  changed_.NotifyAll();
}

bool Mirror::Delete(const std::string& job, int64_t step, const std::string& cause) {
  bool has_copy = false;
  {
    MutexLock lock(mutex_);
    const auto seen = seen_.find(job);
    has_copy = seen != seen_.end() && seen->second.there.contains(step);
    if (has_copy) wishes_[{job, step}] = cause;
  }
  Look(job);
  return has_copy;
}

void Mirror::Run() {
  while (!stop_) {
    bool worked = false;
    const absl::Status status = WithMemory("to look after the mirror", [&] { return Turn(worked); });
    AwaitTurn(status, worked);
  }
  lock_.reset();
  MutexLock lock(mutex_);
  ended_ = true;
  changed_.NotifyAll();
}

std::optional<std::string> Mirror::TakeDue() {
  if (!due_.empty()) {
    std::string job = std::move(due_.front());
    due_.erase(due_.begin());
    return job;
  }
  const absl::Time now = clock_.SteadyNow();
  for (const auto& [job, seen] : seen_) {
    if (seen.next_look <= now) return job;
  }
  return std::nullopt;
}

void Mirror::AwaitTurn(const absl::Status& status, bool worked) {
  MutexLock lock(mutex_);
  if (stop_) return;
  reachable_ = status.ok();
  error_ = status.ok() ? status : Annotate(status, absl::StrCat("the mirror ", options_.address));
  if (status.ok()) {
    if (!told_.empty()) Log(LogLevel::kInfo, "mirror_resumed", {{"mirror", options_.address}});
    told_.clear();
    retry_ = absl::ZeroDuration();
    if (worked) return;
    absl::Time next = absl::InfiniteFuture();
    for (const auto& [job, seen] : seen_) next = std::min(next, seen.next_look);
    while (!stop_ && due_.empty() && clock_.SteadyNow() < next) {
      if (!changed_.WaitFor(mutex_, next - clock_.SteadyNow())) break;
    }
    return;
  }
  ++counts_.failures;
  if (told_ != status.message()) {
    told_ = std::string(status.message());
    Log(LogLevel::kWarn, "mirror_failed", {{"mirror", options_.address}, {"error", status}});
  }
  retry_ = std::clamp(2 * retry_, options_.first_retry, options_.longest_retry);
  const absl::Time next_try = clock_.SteadyNow() + retry_;
  while (!stop_ && clock_.SteadyNow() < next_try) changed_.WaitFor(mutex_, next_try - clock_.SteadyNow());
}

absl::StatusOr<std::shared_ptr<Mirror::Side>> Mirror::Opened() {
  MutexLock lock(open_mutex_);
  if (side_ == nullptr) {
    CAIRN_ASSIGN_OR_RETURN(auto storage, options_.open());
    side_ = std::make_shared<Side>(std::move(storage));
  }
  return side_;
}

absl::StatusOr<bool> Mirror::BelongsToRoot(Storage& storage) const {
  const std::string root = root_.storage().root();
  const auto other = [&](const std::string& what, const std::string& then) {
    return MakeError(
        Reason::kRootInUse, absl::StrCat(options_.address, " is no mirror of ", root, ": ", what),
        {{"root", options_.address}, {"next", absl::StrCat("Give --mirror a place where nothing is. ", then)}});
  };
  const auto owner = storage.Read(kOwnerPath, kMaxOwnerBytes);
  if (owner.ok() && *owner == absl::StrCat(root, "\n")) return true;
  if (owner.ok()) {
    return other(absl::StrCat("it is that of ", *owner),
                 absl::StrCat("Or, if this root took the other's place, remove ", storage.FullPath(kOwnerPath),
                              " and put the name of this root there."));
  }
  if (!HasReason(owner.status(), Reason::kFileMissing)) return owner.status();
  const auto entries = storage.List("");
  if (HasReason(entries.status(), Reason::kFileMissing)) return false;
  CAIRN_RETURN_IF_ERROR(entries.status());
  for (const Storage::Entry& entry : *entries) {
    if (entry.name != kOwnDirectory) {
      return other(absl::StrCat("nobody mirrored there yet, and it has ", entry.name),
                   "Checkpoints that stand there could be replaced.");
    }
  }
  return false;
}

absl::Status Mirror::Hold() {
  CAIRN_ASSIGN_OR_RETURN(held_side_, Opened());
  Storage& storage = *held_side_->storage;
  CAIRN_ASSIGN_OR_RETURN(const uint64_t refreshed, storage.Refresh());
  if (lock_ != nullptr) {
    const absl::Status held = refreshed == refreshed_ ? lock_->Check() : absl::OkStatus();
    if (held.ok() && refreshed == refreshed_) return held;
    if (!held.ok() && !HasReason(held, Reason::kRootInUse)) return held;
    lock_.reset();
  }
  refreshed_ = refreshed;
  CAIRN_ASSIGN_OR_RETURN(const bool belongs, BelongsToRoot(storage));
  CAIRN_ASSIGN_OR_RETURN(auto lock, storage.TakeRoot());
  CAIRN_RETURN_IF_ERROR(storage.ProbeAtomicCreate());
  if (!belongs) {
    CAIRN_RETURN_IF_ERROR(storage.PutIfAbsent(kOwnerPath, absl::StrCat(root_.storage().root(), "\n")).status());
  }
  // Versions that know no deletions and lineages would misread what is copied.
  CAIRN_RETURN_IF_ERROR(lock->RaiseFormat());
  lock_ = std::move(lock);
  Log(LogLevel::kInfo, "mirror_held", {{"mirror", options_.address}, {"epoch", lock_->epoch()}});
  return absl::OkStatus();
}

absl::Status Mirror::Turn(bool& worked) {
  CAIRN_RETURN_IF_ERROR(Hold());
  bool found = false;
  {
    MutexLock lock(mutex_);
    found = jobs_found_;
  }
  if (!found) {
    CAIRN_ASSIGN_OR_RETURN(const std::vector<std::string> jobs, FindJobs(root_.storage()));
    for (const std::string& job : jobs) Look(job);
    MutexLock lock(mutex_);
    jobs_found_ = true;
  }
  std::optional<std::string> job;
  {
    MutexLock lock(mutex_);
    job = TakeDue();
  }
  worked = job.has_value();
  if (!worked) return absl::OkStatus();
  const absl::Status looked = LookAt(*job);
  // Others have their turn first.
  if (!looked.ok()) Look(*job);
  return looked;
}

absl::StatusOr<Mirror::Records> Mirror::ReadBoth(const std::string& job) {
  Records records;
  CAIRN_ASSIGN_OR_RETURN(records.root, root_.ReadJob(job));
  CAIRN_ASSIGN_OR_RETURN(records.mirror, held_side_->checkpoints.ReadJob(job));
  return records;
}

MirrorWork Mirror::Note(const std::string& job, const Records& records) {
  const JobLineage root_lineage = LineageOf(records.root);
  const JobLineage mirror_lineage = LineageOf(records.mirror);
  std::set<int64_t> all;
  for (const StepRecord& step : records.root) all.insert(step.step);
  for (const StepRecord& step : records.mirror) all.insert(step.step);

  MutexLock lock(mutex_);
  if (all.empty()) {  // anybody may name a job
    seen_.erase(job);
    return {};
  }
  Seen& seen = seen_[job];
  seen.known = true;
  seen.next_look = clock_.SteadyNow() + kLookEach;
  seen.steps.clear();
  seen.there.clear();
  seen.highest_attempt.clear();
  seen.sequence = std::max(seen.sequence, mirror_lineage.sequence());
  for (const StepRecord& step : records.mirror) {
    if (step.state() == StepRecord::State::kCommitted) seen.there[step.step] = *step.deciding();
    if (!step.attempts.empty()) seen.highest_attempt[step.step] = step.attempts.back().attempt;
  }
  std::vector<MirrorStep> steps;
  for (const int64_t number : all) {
    const StepRecord* root = FindStep(records.root, number);
    const StepRecord* mirror = FindStep(records.mirror, number);
    MirrorStep& step = steps.emplace_back(MirrorStepOf(root, mirror, wishes_.contains({job, number})));
    step.superseded = (step.attempt != 0 ? root_lineage : mirror_lineage).superseded().contains(number);
    seen.steps[number] = step;
  }
  seen.work = WorkOf(steps, options_.rule);
  std::erase_if(seen.failed, [&](const auto& entry) {
    const auto& [number, failed] = entry;
    return !Contains(seen.work.copy, number) || seen.steps[number].attempt != failed.attempt;
  });
  for (const MirrorStep& step : steps) {
    if (!step.closed || step.attempt == 0) continue;
    absl::Status why = WhyClosed(step, *FindStep(records.mirror, step.step), job, options_.address);
    if (!why.ok()) seen.failed[step.step] = {step.attempt, std::move(why), true, absl::InfiniteFuture()};
  }
  for (const auto& [number, failed] : seen.failed) seen.next_look = std::min(seen.next_look, failed.next_try);
  return seen.work;
}

absl::Status Mirror::LookAt(const std::string& job) {
  CAIRN_ASSIGN_OR_RETURN(const Records records, ReadBoth(job));
  const MirrorWork work = Note(job, records);
  CAIRN_RETURN_IF_ERROR(CopyMarks(job, records));
  for (const int64_t step : work.follow) {
    std::string cause = "deleted at the root";
    {
      MutexLock lock(mutex_);
      if (const auto wish = wishes_.find({job, step}); wish != wishes_.end()) cause = wish->second;
    }
    CAIRN_RETURN_IF_ERROR(DeleteCopy(job, {step, cause, /*by_rules=*/false}));
  }
  for (const int64_t step : work.outdated) {
    const std::string cause = absl::StrCat("the mirror keeps the last ", options_.rule.keep_last);
    CAIRN_RETURN_IF_ERROR(DeleteCopy(job, {step, cause, /*by_rules=*/true}));
  }
  CAIRN_RETURN_IF_ERROR(Clean(job, records, work));
  const std::optional<int64_t> next = NextCopy(job, work);
  if (!next.has_value()) return absl::OkStatus();
  CAIRN_RETURN_IF_ERROR(Copy(job, *next));
  // What has been committed meanwhile comes first.
  Look(job);
  return absl::OkStatus();
}

std::optional<int64_t> Mirror::NextCopy(const std::string& job, const MirrorWork& work) {
  const absl::Time now = clock_.SteadyNow();
  MutexLock lock(mutex_);
  const auto seen = seen_.find(job);
  if (seen == seen_.end()) return std::nullopt;
  const std::map<int64_t, Failed>& failed = seen->second.failed;
  const auto next = std::find_if(work.copy.begin(), work.copy.end(), [&](int64_t step) {
    const auto found = failed.find(step);
    return found == failed.end() || found->second.next_try <= now;
  });
  return next == work.copy.end() ? std::nullopt : std::optional(*next);
}

absl::Status Mirror::Copy(const std::string& job, int64_t step) {
  const StepRecord standing = root_.ReadStep(job, step);
  if (standing.state() != StepRecord::State::kCommitted) return standing.unread();  // it has gone meanwhile
  const uint32_t attempt = standing.deciding()->attempt;
  const auto record = root_.ReadManifestBytes(job, step);
  if (HasReason(record.status(), Reason::kNotCommitted)) return absl::OkStatus();
  absl::Status copied = record.status();
  const absl::Time begun = clock_.SteadyNow();
  if (record.ok()) {
    {
      MutexLock lock(mutex_);
      copying_ = {job, step, standing.deciding()->bytes};
    }
    const CopyTarget to = {*held_side_->storage, held_side_->checkpoints, *lock_, clock_};
    copied = CopyStep(root_, *record, to, stop_, bytes_done_);
    MutexLock lock(mutex_);
    copying_.reset();
    if (copied.ok()) {
      ++counts_.steps_copied;
      counts_.bytes_copied += standing.deciding()->bytes;
    }
  }
  if (copied.ok()) {
    Log(LogLevel::kInfo, "mirrored",
        {{"job", job},
         {"step", step},
         {"attempt", attempt},
         {"bytes", standing.deciding()->bytes},
         {"took", DurationText(clock_.SteadyNow() - begun)}});
    return copied;
  }
  if (stop_) return copied;
  const bool for_good = IsStepFault(copied) || HasReason(copied, Reason::kStepCommitted);
  if (for_good) {
    // Its files go when the step is deleted, which may be now.
    const StepRecord after = root_.ReadStep(job, step);
    if (after.state() != StepRecord::State::kCommitted || after.deciding()->attempt != attempt) return absl::OkStatus();
    Log(LogLevel::kError, "not_mirrored",
        {{"job", job},
         {"step", step},
         {"attempt", attempt},
         {"error", copied},
         {"next", absl::StrCat("Run `cairn verify ", job, "@", step, "`. The mirror has no copy of this step.")}});
  }
  MutexLock lock(mutex_);
  const absl::Duration rest = for_good ? options_.step_retry : options_.longest_retry;
  seen_[job].failed[step] = {attempt, copied, for_good, clock_.SteadyNow() + rest};
  if (!for_good) return copied;
  ++counts_.failures;
  return absl::OkStatus();
}

absl::Status Mirror::CopyMarks(const std::string& job, const Records& records) {
  for (const StepRecord& mirror : records.mirror) {
    const StepRecord* root = FindStep(records.root, mirror.step);
    const bool told = root != nullptr && root->unlisted.ok() && !root->attempts.empty();
    if (!told || mirror.state() != StepRecord::State::kCommitted) continue;
    CAIRN_RETURN_IF_ERROR(CopyMark(PinPath(job, mirror.step), root->pinned, mirror.pinned));
    std::set<std::string> tags(root->tags.begin(), root->tags.end());
    tags.insert(mirror.tags.begin(), mirror.tags.end());
    for (const std::string& tag : tags) {
      const bool wanted = std::find(root->tags.begin(), root->tags.end(), tag) != root->tags.end();
      const bool there = std::find(mirror.tags.begin(), mirror.tags.end(), tag) != mirror.tags.end();
      CAIRN_RETURN_IF_ERROR(CopyMark(TagPath(job, mirror.step, tag), wanted, there));
    }
  }
  return absl::OkStatus();
}

absl::Status Mirror::CopyMark(const std::string& path, bool wanted, bool there) {
  if (wanted == there) return absl::OkStatus();
  CAIRN_RETURN_IF_ERROR(lock_->Check());
  if (!wanted) return held_side_->storage->RemoveAll(path);
  const auto text = root_.storage().Read(path, kMaxMarkBytes);
  // It was taken away meanwhile; who did that has asked for the next look.
  if (HasReason(text.status(), Reason::kFileMissing)) return absl::OkStatus();
  CAIRN_RETURN_IF_ERROR(text.status());
  return held_side_->storage->PutIfAbsent(path, *text).status();
}

absl::Status Mirror::DeleteCopy(const std::string& job, const DeleteStep& action) {
  DeletionStore deletions(*held_side_->storage, held_side_->checkpoints, clock_, *lock_);
  const absl::Status deleted = deletions.Delete(job, action, std::nullopt).status();
  // The last one goes when a newer one was copied.
  if (HasReason(deleted, Reason::kLastCheckpoint) || HasReason(deleted, Reason::kCheckpointPinned)) {
    return absl::OkStatus();
  }
  if (!deleted.ok() && !HasReason(deleted, Reason::kNotCommitted)) return deleted;
  Log(LogLevel::kInfo, "mirror_deleted", {{"job", job}, {"step", action.step}, {"cause", action.cause}});
  {
    MutexLock lock(mutex_);
    wishes_.erase({job, action.step});
  }
  Look(job);  // to remove the files
  return absl::OkStatus();
}

absl::Status Mirror::Clean(const std::string& job, const Records& records, const MirrorWork& work) {
  Storage& storage = *held_side_->storage;
  DeletionStore deletions(storage, held_side_->checkpoints, clock_, *lock_);
  const bool settled = clock_.SteadyNow() - started_ >= options_.settle;
  for (const StepRecord& step : records.mirror) {
    const StoredAttempt* standing = step.state() == StepRecord::State::kCommitted ? step.deciding() : nullptr;
    bool replaced = false;
    for (const StoredAttempt& attempt : step.attempts) {
      const std::string directory = AttemptDirectory(job, step.step, attempt.attempt);
      if (attempt.deleted && attempt.directory) {
        if (!settled || InUse(job, step.step)) {
          MutexLock lock(mutex_);
          Seen& seen = seen_[job];
          seen.next_look = std::min(seen.next_look, clock_.SteadyNow() + kCleanRetry);
          continue;
        }
        const absl::Status removed = deletions.Remove(job, step.step, attempt.attempt, std::nullopt);
        if (!removed.ok() && !HasReason(removed, Reason::kLastCheckpoint)) return removed;
      }
      replaced = replaced || (attempt.stands() && standing != nullptr && attempt.attempt < standing->attempt);
      if (!attempt.unfinished || !attempt.directory || !Contains(work.clean, step.step)) continue;
      {
        MutexLock lock(mutex_);
        if (Contains(work.copy, step.step) && seen_[job].steps[step.step].attempt == attempt.attempt) continue;
      }
      CAIRN_RETURN_IF_ERROR(lock_->Check());
      CAIRN_RETURN_IF_ERROR(storage.RemoveUnfinished({directory, StepDirectory(job, step.step)}, lock_->began()));
      CAIRN_RETURN_IF_ERROR(storage.RemoveAll(directory));
    }
    if (!replaced) continue;
    CAIRN_ASSIGN_OR_RETURN(const ChangedSteps changed, deletions.Delete(job, DeleteReplaced{step.step}));
    if (!changed.deleted.empty()) Look(job);
  }
  return absl::OkStatus();
}

bool Mirror::InUse(const std::string& job, int64_t step) const {
  MutexLock lock(mutex_);
  const auto found = loads_.find({job, step});
  return found != loads_.end() && !found->second.expired();
}

absl::StatusOr<Mirror::Found> Mirror::Find(const std::string& job, std::optional<int64_t> step, bool fallback) {
  CAIRN_ASSIGN_OR_RETURN(const std::shared_ptr<Side> side, Opened());
  CAIRN_RETURN_IF_ERROR(BelongsToRoot(*side->storage).status());
  CAIRN_ASSIGN_OR_RETURN(const std::vector<StepRecord> at_root, root_.ReadJob(job));
  CAIRN_ASSIGN_OR_RETURN(const std::vector<StepRecord> there, side->checkpoints.ReadJob(job));
  std::set<int64_t> gone;
  for (const StepRecord& record : at_root) {
    if (WasDeletedByPerson(record)) gone.insert(record.step);
  }
  {
    MutexLock lock(mutex_);
    for (const auto& [wish, cause] : wishes_) {
      if (wish.first == job) gone.insert(wish.second);
    }
    Seen& seen = seen_[job];
    seen.sequence = std::max(seen.sequence, LineageOf(there).sequence());
  }
  Found found;
  if (step.has_value()) {
    if (gone.contains(*step)) return CheckpointStore::NotCommitted(job, step, std::nullopt);
    CAIRN_ASSIGN_OR_RETURN(found.manifest, side->checkpoints.ReadValid(job, side->checkpoints.ReadStep(job, *step)));
  } else {
    CAIRN_ASSIGN_OR_RETURN(auto valid, side->checkpoints.FindValid(job, fallback, nullptr, gone));
    found.manifest = std::move(valid.manifest);
    found.passed_over = std::move(valid.passed_over);
  }
  const int64_t chosen = found.manifest->step;
  {
    MutexLock lock(mutex_);
    std::erase_if(loads_, [](const auto& load) { return load.second.expired(); });
    std::weak_ptr<const void>& load = loads_[{job, chosen}];
    found.hold = load.lock();
    if (found.hold == nullptr) load = found.hold = std::make_shared<const int>(0);
  }
  // Files are removed after their step's deletion was recorded. If that was not seen before, it is now.
  CAIRN_ASSIGN_OR_RETURN(found.manifest, side->checkpoints.ReadValid(job, side->checkpoints.ReadStep(job, chosen)));
  found.directory = absl::StrCat(options_.address, "/", job);
  return found;
}

bool Mirror::Awaits(const std::string& job, int64_t step) const {
  const MirrorRule& rule = options_.rule;
  if (!rule.waits_for_each() || (rule.steps == MirrorRule::Steps::kEvery && step % rule.every != 0)) return false;
  MutexLock lock(mutex_);
  const auto seen = seen_.find(job);
  if (seen == seen_.end() || !seen->second.known || !seen->second.steps.contains(step)) return true;
  const auto failed = seen->second.failed.find(step);
  return Contains(seen->second.work.copy, step) && (failed == seen->second.failed.end() || !failed->second.for_good);
}

uint32_t Mirror::HighestAttempt(const std::string& job, int64_t step) const {
  MutexLock lock(mutex_);
  const auto seen = seen_.find(job);
  if (seen == seen_.end()) return 0;
  const auto found = seen->second.highest_attempt.find(step);
  return found == seen->second.highest_attempt.end() ? 0 : found->second;
}

uint64_t Mirror::Sequence(const std::string& job) const {
  MutexLock lock(mutex_);
  const auto seen = seen_.find(job);
  return seen == seen_.end() ? 0 : seen->second.sequence;
}

v1::MirroredCheckpoint Mirror::Describe(const std::string& job, int64_t step) const {
  v1::MirroredCheckpoint made;
  MutexLock lock(mutex_);
  const auto seen = seen_.find(job);
  if (seen == seen_.end() || !seen->second.known) return made;
  const auto known = seen->second.steps.find(step);
  const auto failed = seen->second.failed.find(step);
  if (copying_.has_value() && copying_->job == job && copying_->step == step) {
    made.set_state(v1::MirroredCheckpoint::COPYING);
  } else if (failed != seen->second.failed.end()) {
    made.set_state(failed->second.for_good ? v1::MirroredCheckpoint::FAILED : v1::MirroredCheckpoint::WAITING);
    *made.mutable_error() = StatusToProto(failed->second.error);
  } else if (known == seen->second.steps.end() || !known->second.at_root) {
    // It was committed after the last look.
    const bool passed_over = options_.rule.steps == MirrorRule::Steps::kEvery && step % options_.rule.every != 0;
    made.set_state(passed_over ? v1::MirroredCheckpoint::LEFT_OUT : v1::MirroredCheckpoint::WAITING);
  } else if (known->second.is_mirrored() || (known->second.attempt == 0 && known->second.mirrored != 0)) {
    made.set_state(v1::MirroredCheckpoint::MIRRORED);
  } else {
    made.set_state(Contains(seen->second.work.copy, step) ? v1::MirroredCheckpoint::WAITING
                                                          : v1::MirroredCheckpoint::LEFT_OUT);
  }
  return made;
}

v1::Mirror Mirror::View(const std::string& job) const {
  v1::Mirror made;
  made.set_address(options_.address);
  MutexLock lock(mutex_);
  if (!error_.ok()) *made.mutable_error() = StatusToProto(error_);
  const auto seen = seen_.find(job);
  if (seen != seen_.end()) made.set_steps_waiting(static_cast<uint32_t>(seen->second.work.copy.size()));
  if (copying_.has_value() && copying_->job == job) {
    made.set_copying_step(copying_->step);
    made.set_bytes_done(bytes_done_);
    made.set_bytes_total(copying_->bytes_total);
  }
  return made;
}

std::vector<v1::Checkpoint> Mirror::OnlyThere(const std::string& job) const {
  std::vector<v1::Checkpoint> made;
  MutexLock lock(mutex_);
  const auto seen = seen_.find(job);
  if (seen == seen_.end()) return made;
  for (const auto& [number, commit] : seen->second.there) {
    const auto step = seen->second.steps.find(number);
    if (step == seen->second.steps.end() || step->second.at_root || step->second.deleted) continue;
    v1::Checkpoint& entry = made.emplace_back(CheckpointOf(job, commit));
    entry.mutable_mirror()->set_state(v1::MirroredCheckpoint::ONLY_THERE);
  }
  return made;
}

Mirror::Counts Mirror::counts() const {
  MutexLock lock(mutex_);
  Counts counts = counts_;
  counts.reachable = reachable_;
  for (const auto& [job, seen] : seen_) counts.steps_waiting += seen.work.copy.size();
  return counts;
}

}  // namespace cairn

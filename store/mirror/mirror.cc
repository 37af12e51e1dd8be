#include "store/mirror/mirror.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/duration_text.h"
#include "common/format/checkpoint_path.h"
#include "common/process/log.h"
#include "common/resources/memory.h"
#include "common/resources/thread.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "store/mirror/step_copy.h"
#include "store/read/stored_jobs.h"

namespace cairn {
namespace {

constexpr absl::Duration kFirstLook = absl::Seconds(10);
// So many marks wait to be taken away. A mark that is left only keeps a copy longer.
constexpr size_t kMaxUnmarked = 1000;
// So long rules wait for a look at a copy.
constexpr absl::Duration kLookPatience = absl::Seconds(3);

}  // namespace

Mirror::Mirror(MirrorOptions options, CheckpointStore& root, const Clock& clock)
    : options_(std::move(options)),
      root_(root),
      clock_(clock),
      started_(clock.SteadyNow()),
      place_(std::make_shared<MirrorPlace>(options_.address, options_.root, options_.open)),
      view_(options_.address, options_.rule) {}

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
  // A look at a copy has a thread of its own, which uses the storage too.
  while (*looking_) {
    if (clock_.SteadyNow() >= deadline) return false;
    absl::SleepFor(absl::Milliseconds(5));
  }
  return true;
}

void Mirror::Look(const std::string& job) {
  MutexLock lock(mutex_);
  if (std::find(due_.begin(), due_.end(), job) == due_.end()) due_.push_back(job);
  changed_.NotifyAll();
}

void Mirror::Run() {
  while (!stop_) {
    bool worked = false;
    const absl::Status status = WithMemory("to look after the mirror", [&] { return Work(worked); });
    AwaitWork(status, worked);
  }
  place_->Release();
  MutexLock lock(mutex_);
  ended_ = true;
  changed_.NotifyAll();
}

std::optional<std::string> Mirror::TakeDue() {
  {
    MutexLock lock(mutex_);
    if (!due_.empty()) {
      std::string job = std::move(due_.front());
      due_.erase(due_.begin());
      return job;
    }
  }
  return view_.Due(clock_.SteadyNow());
}

void Mirror::AwaitWork(const absl::Status& status, bool worked) {
  if (stop_) return;
  ErrorMetadata advice;
  if (!HasReason(status, Reason::kRootInUse)) {
    advice = {{"next", absl::StrCat("The coordinator tries again. Look at the storage of ", options_.address, ".")}};
  }
  view_.SetReachable(status.ok() ? status : Annotate(status, absl::StrCat("the mirror ", options_.address), advice));
  absl::Time next = clock_.SteadyNow();
  if (status.ok()) {
    if (!told_.empty()) Log(LogLevel::kInfo, "mirror_resumed", {{"mirror", options_.address}});
    told_.clear();
    retry_ = absl::ZeroDuration();
    if (worked) return;
    next = std::min(view_.NextTime(), next + options_.ping);
  } else {
    if (told_ != status.message()) {
      told_ = std::string(status.message());
      Log(LogLevel::kWarn, "mirror_failed", {{"mirror", options_.address}, {"error", status}});
    }
    retry_ = std::clamp(2 * retry_, options_.first_retry, options_.longest_retry);
    next += retry_;
  }
  MutexLock lock(mutex_);
  while (!stop_ && clock_.SteadyNow() < next && (!status.ok() || due_.empty())) {
    if (!changed_.WaitFor(mutex_, next - clock_.SteadyNow())) break;
  }
}

absl::Status Mirror::LookForJobs(const MirrorPlace::Held& held) {
  for (Storage* storage : {&root_.storage(), held.side->storage.get()}) {
    CAIRN_ASSIGN_OR_RETURN(const std::vector<std::string> jobs, FindJobs(*storage));
    for (const std::string& job : jobs) Look(job);
  }
  return absl::OkStatus();
}

absl::Status Mirror::Work(bool& worked) {
  CAIRN_ASSIGN_OR_RETURN(const std::shared_ptr<const MirrorPlace::Held> held, place_->Hold());
  if (!jobs_found_) CAIRN_RETURN_IF_ERROR(LookForJobs(*held));
  jobs_found_ = true;
  if (const std::optional<std::string> job = TakeDue(); job.has_value()) {
    worked = true;
    const absl::Status looked = LookAt(*held, *job);
    // Others have their turn first.
    if (!looked.ok()) Look(*job);
    return looked;
  }
  const std::optional<MirrorView::Copy> next = view_.NextCopy(clock_.SteadyNow());
  worked = next.has_value();
  if (!worked) return absl::OkStatus();
  const absl::Status copied = Copy(*held, *next);
  Look(next->job);
  return copied;
}

absl::StatusOr<MirrorRecords> Mirror::ReadBoth(MirrorPlace::Side& side, const std::string& job) {
  MirrorRecords records;
  CAIRN_ASSIGN_OR_RETURN(records.root, root_.ReadJob(job));
  CAIRN_ASSIGN_OR_RETURN(records.mirror, side.checkpoints.ReadJob(job));
  return records;
}

absl::Status Mirror::Copy(const MirrorPlace::Held& held, const MirrorView::Copy& copy) {
  const auto& [job, step] = copy;
  const StepRecord standing = root_.ReadStep(job, step);
  if (standing.state() != StepRecord::State::kCommitted) return standing.unread();  // it has gone meanwhile
  const uint32_t attempt = standing.deciding()->attempt;
  const uint64_t bytes = standing.deciding()->bytes;
  const absl::Time begun = clock_.SteadyNow();
  // Rules leave the step alone from here on; see MirrorView::Awaits.
  view_.BeginCopy(copy, bytes, bytes_done_);
  const auto record = root_.ReadManifestBytes(job, step);
  absl::Status copied = record.status();
  if (record.ok()) copied = ForgetDeleted(held, job, step, attempt);
  if (copied.ok()) {
    const CopyTarget to = {*held.side->storage, held.side->checkpoints, *held.lock, clock_};
    copied = CopyStep(root_, *record, to, stop_, bytes_done_);
  }
  view_.EndCopy(copied);
  if (copied.ok()) {
    Log(LogLevel::kInfo, "mirrored",
        {{"job", job},
         {"step", step},
         {"attempt", attempt},
         {"bytes", bytes},
         {"took", DurationText(clock_.SteadyNow() - begun)}});
    return copied;
  }
  if (stop_ || HasReason(record.status(), Reason::kNotCommitted)) return absl::OkStatus();
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
  view_.NoteFailure(copy, attempt, copied, for_good, clock_.SteadyNow(), options_.longest_retry,
                    for_good ? options_.step_retry : options_.longest_retry);
  return for_good ? absl::OkStatus() : copied;
}

absl::Status Mirror::MayReplace(const std::string& job, const ReserveAttempt& save) const {
  if (!view_.IsBuiltOnThere(job, save.step, save.resumed)) return absl::OkStatus();
  const ErrorMetadata metadata = {{"job", job}, {"step", absl::StrCat(save.step)}};
  const std::string name = absl::StrCat(job, "@", save.step);
  if (!save.overwrite) {
    return MakeError(Reason::kStepCommitted,
                     absl::StrCat(name, " is committed already: only the mirror ", options_.address, " has it"),
                     metadata);
  }
  const std::optional<MirrorStep> step = view_.Find(job, save.step);
  if (!step.has_value() || !step->kept) return absl::OkStatus();
  return MakeError(Reason::kCheckpointPinned,
                   absl::StrCat("not overwritten: a pin or a tag keeps ", name, " at the mirror ", options_.address),
                   metadata);
}

void Mirror::Unmark(const std::string& job, int64_t step, const std::string& tag) {
  {
    MutexLock lock(mutex_);
    if (unmarked_.size() < kMaxUnmarked) unmarked_.emplace(job, step, tag);
  }
  Look(job);
}

bool Mirror::IsLatest(const std::string& job, int64_t step) const {
  bool runs = false;
  {
    MutexLock lock(mutex_);
    runs = !ended_;
  }
  if (runs) view_.AwaitSeen(job, kFirstLook);
  if (runs && !view_.IsKnown(job)) {
    Log(LogLevel::kWarn, "mirror_not_seen",
        {{"job", job},
         {"step", step},
         {"mirror", options_.address},
         {"next", "It may have later steps than the root."}});
  }
  return view_.IsLatest(job, step);
}

void Mirror::NoteChecked(const std::string& job, int64_t step, const absl::Status& whole) {
  if (!view_.NoteChecked({job, step}, whole, clock_.SteadyNow())) return;
  Log(LogLevel::kError, "mirror_copy_damaged",
      {{"job", job}, {"step", step}, {"mirror", options_.address}, {"error", whole}});
}

bool Mirror::MayRulesDelete(const std::string& job, int64_t step) {
  if (view_.NeedsNoCheck(job, step, clock_.SteadyNow())) return true;
  // Storage may hold whoever looks. Other changes of the job must not wait for that, so a thread of its own looks, and
  // no second one while the first one has not ended.
  struct CopyLook {
    Mutex mutex;
    CondVar ended;
    std::optional<std::pair<StepRecord, absl::Status>> found ABSL_GUARDED_BY(mutex);
  };
  if (looking_->exchange(true)) return false;
  const auto look = std::make_shared<CopyLook>();
  auto thread = StartThread("to look at a copy", [look, place = place_, looking = looking_, job, step] {
    StepRecord there;
    const absl::Status whole = WithMemory("to look at a copy", [&]() -> absl::Status {
      CAIRN_ASSIGN_OR_RETURN(const std::shared_ptr<MirrorPlace::Side> side, place->ToRead());
      there = side->checkpoints.ReadStep(job, step);
      CAIRN_RETURN_IF_ERROR(there.unlisted);
      return side->checkpoints.ReadValid(job, there).status();
    });
    *looking = false;  // who waits may ask for the next look at once
    MutexLock lock(look->mutex);
    look->found.emplace(std::move(there), whole);
    look->ended.NotifyAll();
  });
  if (!thread.ok()) {
    *looking_ = false;
    return false;
  }
  thread->detach();
  const absl::Time deadline = absl::Now() + kLookPatience;
  std::optional<std::pair<StepRecord, absl::Status>> found;
  {
    MutexLock lock(look->mutex);
    while (!look->found.has_value() && absl::Now() < deadline) look->ended.WaitFor(look->mutex, deadline - absl::Now());
    found = look->found;
  }
  if (!found.has_value()) return false;
  const auto& [there, whole] = *found;
  if (!whole.ok() && !IsProvenDamage(whole) && !HasReason(whole, Reason::kNotCommitted)) return false;
  const StepRecord root = root_.ReadStep(job, step);
  const MirrorStep joined = MirrorStepOf(&root, &there);
  if (joined.copy != MirrorStep::Copy::kSame || joined.unread) {
    Look(job);
    return false;
  }
  NoteChecked(job, step, whole);
  if (!whole.ok()) Look(job);  // and it is copied again
  return whole.ok();
}

bool Mirror::InUse(const std::string& job, int64_t step) const {
  MutexLock lock(mutex_);
  const auto found = loads_.find({job, step});
  return found != loads_.end() && !found->second.expired();
}

absl::StatusOr<Mirror::Found> Mirror::Held(MirrorPlace::Side& side, const std::string& job, int64_t step) {
  Found found;
  {
    MutexLock lock(mutex_);
    std::erase_if(loads_, [](const auto& load) { return load.second.expired(); });
    std::weak_ptr<const void>& load = loads_[{job, step}];
    found.hold = load.lock();
    if (found.hold == nullptr) load = found.hold = std::make_shared<const int>(0);
  }
  // Files are removed after their step's deletion was recorded. If that was not seen before, it is now.
  auto valid = side.checkpoints.ReadValid(job, side.checkpoints.ReadStep(job, step));
  if (valid.ok() || IsProvenDamage(valid.status())) NoteChecked(job, step, valid.status());
  CAIRN_RETURN_IF_ERROR(valid.status());
  found.manifest = *std::move(valid);
  found.directory = absl::StrCat(options_.address, "/", job);
  return found;
}

absl::StatusOr<Mirror::Found> Mirror::Find(const std::string& job, int64_t step) {
  CAIRN_ASSIGN_OR_RETURN(const std::shared_ptr<MirrorPlace::Side> side, place_->ToRead());
  const StepRecord root = root_.ReadStep(job, step);
  const StepRecord there = side->checkpoints.ReadStep(job, step);
  for (const StepRecord* record : {&root, &there}) {
    CAIRN_RETURN_IF_ERROR(record->unlisted);
    CAIRN_RETURN_IF_ERROR(record->unread());
  }
  CAIRN_RETURN_IF_ERROR(there.damage());
  if (!MirrorStepOf(&root, &there).loadable()) return CheckpointStore::NotCommitted(job, step, std::nullopt);
  return Held(*side, job, step);
}

absl::StatusOr<Mirror::Found> Mirror::FindLatest(const std::string& job, bool fallback,
                                                 const std::set<int64_t>& damaged) {
  CAIRN_ASSIGN_OR_RETURN(const std::shared_ptr<MirrorPlace::Side> side, place_->ToRead());
  CAIRN_ASSIGN_OR_RETURN(const MirrorRecords records, ReadBoth(*side, job));
  view_.Note(job, records, clock_.SteadyNow());
  const std::vector<MirrorStep> steps = JoinSteps(records.root, records.mirror);
  std::vector<std::pair<int64_t, absl::Status>> passed_over;
  for (size_t i = steps.size(); i-- > 0;) {
    const MirrorStep& step = steps[i];
    const StepRecord* root = FindStep(records.root, step.step);
    const StepRecord* there = FindStep(records.mirror, step.step);
    const bool damaged_there = there != nullptr && there->state() == StepRecord::State::kDamaged;
    if (step.superseded || (!step.loadable() && !step.at_root && !damaged_there && !step.unread)) continue;
    for (const StepRecord* record : {root, there}) {
      if (record == nullptr) continue;
      CAIRN_RETURN_IF_ERROR(record->unlisted);
      CAIRN_RETURN_IF_ERROR(record->unread());
    }
    absl::Status why = CheckpointStore::NotCommitted(job, step.step, std::nullopt);
    if (step.at_root) {
      auto manifest = root_.ReadValid(job, *root);
      why = manifest.status();
      if (manifest.ok() && !damaged.contains(step.step)) {
        return Found{*std::move(manifest), std::move(passed_over), "", nullptr};
      }
      if (manifest.ok()) why = MakeError(Reason::kChecksumMismatch, "an earlier load has found damage in its files");
    } else if (damaged_there) {
      why = there->damage();
    }
    if (step.loadable()) {
      auto found = Held(*side, job, step.step);
      if (found.ok()) {
        found->passed_over = std::move(passed_over);
        return found;
      }
      if (!IsProvenDamage(found.status())) return found.status();
      if (!step.at_root) why = found.status();
    }
    if (!fallback) return why;
    passed_over.emplace_back(step.step, std::move(why));
  }
  if (!passed_over.empty()) return passed_over.front().second;
  return CheckpointStore::NotCommitted(job, std::nullopt, std::nullopt);
}

}  // namespace cairn

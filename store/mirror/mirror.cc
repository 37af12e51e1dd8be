#include "store/mirror/mirror.h"

#include <algorithm>

#include "absl/strings/match.h"
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
#include "store/write/attempt_store.h"

namespace cairn {
namespace {

constexpr absl::Duration kFirstLook = absl::Seconds(10);
// So many marks wait to be taken away. A mark that is left only keeps a copy longer.
constexpr size_t kMaxUnmarked = 1000;
// While copies follow each other, their job is looked at so often.
constexpr absl::Duration kLookWhileCopying = absl::Seconds(1);
// So long rules wait for a look at a copy.
constexpr absl::Duration kLookPatience = absl::Seconds(3);

}  // namespace

Mirror::Mirror(MirrorOptions options, CheckpointStore& root, const Clock& clock)
    : options_(std::move(options)),
      root_(root),
      clock_(clock),
      started_(clock.SteadyNow()),
      place_(std::make_shared<MirrorPlace>(options_.address, options_.root, options_.open, root.storage())),
      view_(options_.address, options_.rule, options_.patience) {}

Mirror::~Mirror() {
  for (std::thread* thread : {&looker_, &copier_}) {
    if (thread->joinable()) thread->join();
  }
}

absl::Status Mirror::Start() {
  {
    MutexLock lock(mutex_);
    running_ = 2;
  }
  auto looker = StartThread("to look after the mirror", [this] { RunLooks(); });
  if (looker.ok()) looker_ = *std::move(looker);
  auto copier =
      looker.ok() ? StartThread("to copy checkpoints to the mirror", [this] { RunCopies(); }) : looker.status();
  if (copier.ok()) {
    copier_ = *std::move(copier);
    return absl::OkStatus();
  }
  stop_ = true;
  stop_copy_ = true;
  MutexLock lock(mutex_);
  running_ -= looker.ok() ? 1 : 2;
  changed_.NotifyAll();
  return copier.status();
}

bool Mirror::Stop(absl::Duration patience) {
  stop_ = true;
  stop_copy_ = true;
  const absl::Time deadline = clock_.SteadyNow() + patience;
  {
    MutexLock lock(mutex_);
    changed_.NotifyAll();
    while (running_ > 0) {
      const absl::Duration left = deadline - clock_.SteadyNow();
      if (left <= absl::ZeroDuration()) return false;
      changed_.WaitFor(mutex_, left);
    }
  }
  for (std::thread* thread : {&looker_, &copier_}) {
    if (thread->joinable()) thread->join();
  }
  // A look at a copy has a thread of its own, which uses the storage too.
  while (*looking_ || *asking_ > 0) {
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

void Mirror::NoteDeleted(const std::string& job, const std::vector<StoredAttempt>& deleted) {
  for (const StoredAttempt& attempt : deleted) {
    view_.NoteDeleted(job, attempt.step, attempt.attempt, attempt.deleted_by_rules, clock_.SteadyNow());
  }
}

Mirror::JobOrder::JobOrder(Mirror& mirror, std::string job) : mirror_(mirror), job_(std::move(job)) {
  MutexLock lock(mirror_.mutex_);
  while (!mirror_.ordered_.insert(job_).second) mirror_.changed_.Wait(mirror_.mutex_);
}

Mirror::JobOrder::~JobOrder() {
  MutexLock lock(mirror_.mutex_);
  mirror_.ordered_.erase(job_);
  mirror_.changed_.NotifyAll();
}

void Mirror::NoteEnd() {
  MutexLock lock(mutex_);
  --running_;
  changed_.NotifyAll();
}

void Mirror::RunLooks() {
  while (!stop_) {
    bool worked = false;
    view_.BeginAsking();
    const absl::Status status = WithMemory("to look after the mirror", [&] { return Work(worked); });
    view_.EndAsking();
    AwaitWork(status, worked);
  }
  place_->Release();
  NoteEnd();
}

void Mirror::RunCopies() {
  absl::Time rest = absl::InfinitePast();
  while (!stop_) {
    uint64_t looks = 0;
    {
      MutexLock lock(mutex_);
      looks = looks_;
    }
    absl::Time next = rest;
    if (clock_.SteadyNow() >= rest && CopyNext(next)) {
      rest = next;
      continue;
    }
    next = std::min(next, clock_.SteadyNow() + options_.ping);
    MutexLock lock(mutex_);
    while (!stop_ && clock_.SteadyNow() < next && (looks == looks_ || clock_.SteadyNow() < rest)) {
      changed_.WaitFor(mutex_, next - clock_.SteadyNow());
    }
  }
  NoteEnd();
}

bool Mirror::CopyNext(absl::Time& next) {
  // The place is held by the thread that looks.
  const std::shared_ptr<const MirrorPlace::Held> held = place_->held();
  const std::optional<MirrorView::Copy> copy = held == nullptr ? std::nullopt : view_.NextCopy(clock_.SteadyNow());
  if (!copy.has_value()) {
    next = held == nullptr ? absl::InfiniteFuture() : view_.NextCopyTime(clock_.SteadyNow());
    return false;
  }
  stop_copy_ = false;
  if (stop_) stop_copy_ = true;
  const absl::Status copied = WithMemory("to copy a step", [&] { return Copy(*held, *copy); });
  if (!copied.ok()) view_.EndCopy(copied, clock_.SteadyNow());
  // A look costs as much as the job has steps.
  if (copied.ok() && view_.NextCopyTime(clock_.SteadyNow()) <= clock_.SteadyNow()) {
    view_.LookBy(copy->job, clock_.SteadyNow() + kLookWhileCopying);
    MutexLock lock(mutex_);
    changed_.NotifyAll();
  } else {
    Look(copy->job);
  }
  next = clock_.SteadyNow();
  if (copied.ok()) {
    if (!told_copy_.empty()) Log(LogLevel::kInfo, "mirror_resumed", {{"mirror", options_.address}});
    told_copy_.clear();
    copy_retry_ = absl::ZeroDuration();
    return true;
  }
  if (told_copy_ != copied.message() && !stop_) {
    told_copy_ = std::string(copied.message());
    Log(LogLevel::kWarn, "mirror_failed",
        {{"mirror", options_.address}, {"job", copy->job}, {"step", copy->step}, {"error", copied}});
  }
  copy_retry_ = std::clamp(2 * copy_retry_, options_.first_retry, options_.longest_retry);
  next += copy_retry_;
  return true;
}

std::optional<std::string> Mirror::TakeDue() {
  const std::optional<std::string> due = view_.Due(clock_.SteadyNow());
  MutexLock lock(mutex_);
  // Those for which Look is called again and again must not keep others back, nor the other way round.
  asked_first_ = !asked_first_;
  if (due_.empty() || (due.has_value() && !asked_first_)) return due;
  std::string job = std::move(due_.front());
  due_.erase(due_.begin());
  return job;
}

absl::Status Mirror::OfMirror(const absl::Status& status) const {
  // The storage's own advice is better.
  const std::string next = absl::StrCat("The coordinator tries again. Look at the storage of ", options_.address, ".");
  const bool is_named = absl::StrContains(status.message(), options_.address);
  return WithMetadata(is_named ? status : Annotate(status, absl::StrCat("the mirror ", options_.address)),
                      {{"next", next}});
}

void Mirror::AwaitWork(const absl::Status& status, bool worked) {
  if (stop_) return;
  view_.SetReachable(status.ok() ? status : OfMirror(status));
  absl::Time next = clock_.SteadyNow();
  if (status.ok()) {
    if (!told_.empty()) Log(LogLevel::kInfo, "mirror_resumed", {{"mirror", options_.address}});
    told_.clear();
    retry_ = absl::ZeroDuration();
    next = worked ? next : std::min(view_.NextLook(), next + options_.ping);
  } else {
    if (told_ != status.message()) {
      told_ = std::string(status.message());
      Log(LogLevel::kWarn, "mirror_failed", {{"mirror", options_.address}, {"error", status}});
    }
    retry_ = std::clamp(2 * retry_, options_.first_retry, options_.longest_retry);
    next += retry_;
  }
  MutexLock lock(mutex_);
  ++looks_;
  changed_.NotifyAll();
  while (!stop_ && clock_.SteadyNow() < next && (!status.ok() || due_.empty())) {
    changed_.WaitFor(mutex_, next - clock_.SteadyNow());
    if (status.ok()) next = std::min(next, view_.NextLook());
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
  const std::shared_ptr<const MirrorPlace::Held> before = place_->held();
  const auto held = place_->Hold();
  if (before != nullptr && place_->held() != before) stop_copy_ = true;
  CAIRN_RETURN_IF_ERROR(held.status());
  if (!jobs_found_) CAIRN_RETURN_IF_ERROR(LookForJobs(**held));
  jobs_found_ = true;
  const std::optional<std::string> job = TakeDue();
  if (!job.has_value()) return absl::OkStatus();
  worked = true;
  const absl::Status looked = LookAt(**held, *job);
  if (looked.ok() || stop_) return absl::OkStatus();
  // Other jobs go on. If the mirror itself is the cause, the next Hold says so.
  if (view_.NoteUnlooked(*job, OfMirror(looked), clock_.SteadyNow(), options_.first_retry, options_.longest_retry)) {
    Log(LogLevel::kWarn, "mirror_failed", {{"mirror", options_.address}, {"job", *job}, {"error", looked}});
  }
  return absl::OkStatus();
}

absl::StatusOr<MirrorRecords> Mirror::ReadBoth(MirrorPlace::Side& side, const std::string& job) {
  MirrorRecords records;
  CAIRN_ASSIGN_OR_RETURN(records.mirror, side.checkpoints.ReadJob(job));
  auto root = root_.ReadJob(job);
  if (!root.ok()) {
    const std::string& name = root_.storage().root();
    return WithMetadata(Annotate(root.status(), absl::StrCat(job, " at the root")),
                        {{"next", absl::StrCat("The coordinator tries again. Look at the storage of ", name, ".")}});
  }
  records.root = *std::move(root);
  return records;
}

absl::Status Mirror::Copy(const MirrorPlace::Held& held, const MirrorView::Copy& copy) {
  const auto& [job, step] = copy;
  const absl::Time begun = clock_.SteadyNow();
  uint32_t attempt = 0;
  uint64_t bytes = 0;
  absl::StatusOr<CheckpointStore::ManifestBytes> record;
  absl::Status copied;
  {
    const Turn turn(*this, absl::InfiniteDuration());
    const StepRecord standing = root_.ReadStep(job, step);
    if (standing.state() != StepRecord::State::kCommitted) return standing.unread();  // it has gone meanwhile
    const StepRecord there = held.side->checkpoints.ReadStep(job, step);
    CAIRN_RETURN_IF_ERROR(there.unlisted);
    const MirrorStep joined = MirrorStepOf(&standing, &there);
    const std::optional<MirrorStep> seen = view_.Find(job, step);
    const bool is_damaged = seen.has_value() && seen->copy_damaged;
    if (!joined.unread && (joined.closed || (joined.has_copy() && !is_damaged))) return absl::OkStatus();
    attempt = standing.deciding()->attempt;
    bytes = standing.deciding()->bytes;
    // Rules leave the step alone from here on; see MirrorView::Awaits. So do looks.
    view_.BeginCopy(copy, bytes, bytes_done_);
    record = root_.ReadManifestBytes(job, step);
    copied = record.status();
    if (record.ok()) copied = ForgetDeleted(held, job, step, attempt);
  }
  if (copied.ok()) {
    const CopyTarget to = {*held.side->storage, held.side->checkpoints, *held.lock, clock_};
    copied = CopyStep(root_, *record, to, stop_copy_, bytes_done_);
  }
  view_.EndCopy(copied, clock_.SteadyNow());
  if (copied.ok()) {
    AttemptStore::KeepReserve(*held.side->storage);
    Log(LogLevel::kInfo, "mirrored",
        {{"job", job},
         {"step", step},
         {"attempt", attempt},
         {"bytes", bytes},
         {"took", DurationText(clock_.SteadyNow() - begun)}});
    return copied;
  }
  if (stop_copy_ || HasReason(record.status(), Reason::kNotCommitted)) return absl::OkStatus();
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
    runs = running_ > 0;
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
  // A file that is copied again has its length at once, and its bytes later.
  if (view_.IsCopyingNow(job, step)) return false;
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
  if (!found.has_value() || view_.IsCopyingNow(job, step)) return false;
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

absl::StatusOr<std::shared_ptr<MirrorPlace::Side>> Mirror::ToRead(const std::string& job, absl::Duration patience) {
  if (const absl::Status trouble = view_.Trouble(job); HasReason(trouble, Reason::kStorageStalled)) return trouble;
  std::shared_ptr<Question> question;
  {
    MutexLock lock(mutex_);
    question = question_;
    if (question == nullptr) {
      question = question_ = std::make_shared<Question>();
      ++*asking_;
      auto thread = StartThread("to ask the mirror", [question, place = place_, asking = asking_] {
        absl::StatusOr<std::shared_ptr<MirrorPlace::Side>> side;
        const absl::Status asked = WithMemory("to ask the mirror", [&] {
          side = place->ToRead();
          return side.status();
        });
        if (!asked.ok()) side = asked;
        --*asking;
        MutexLock answers(question->mutex);
        question->answer = std::move(side);
        question->answered.NotifyAll();
      });
      if (!thread.ok()) {
        --*asking_;
        question_ = nullptr;
        return thread.status();
      }
      thread->detach();
    }
  }
  const absl::Time deadline = absl::Now() + patience;
  std::optional<absl::StatusOr<std::shared_ptr<MirrorPlace::Side>>> answer;
  {
    MutexLock lock(question->mutex);
    while (!question->answer.has_value() && absl::Now() < deadline) {
      question->answered.WaitFor(question->mutex, deadline - absl::Now());
    }
    answer = question->answer;
  }
  if (answer.has_value()) {
    MutexLock lock(mutex_);
    if (question_ == question) question_ = nullptr;
    return *std::move(answer);
  }
  return MakeError(
      Reason::kStorageStalled,
      absl::StrCat("the mirror ", options_.address, " has not answered for ", absl::FormatDuration(patience)),
      {{"job", job}, {"next", absl::StrCat("Try again. See whether the storage of ", options_.address, " answers.")}});
}

absl::StatusOr<Mirror::Found> Mirror::Find(const std::string& job, int64_t step) {
  CAIRN_ASSIGN_OR_RETURN(const std::shared_ptr<MirrorPlace::Side> side, ToRead(job, options_.patience));
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
  CAIRN_ASSIGN_OR_RETURN(const std::shared_ptr<MirrorPlace::Side> side, ToRead(job, options_.patience));
  const absl::Time began = clock_.SteadyNow();
  CAIRN_ASSIGN_OR_RETURN(const MirrorRecords records, ReadBoth(*side, job));
  view_.Note(job, records, began, clock_.SteadyNow());
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

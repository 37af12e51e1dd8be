#include "store/mirror/mirror.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/process/log.h"
#include "common/resources/memory.h"
#include "common/resources/thread.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "store/read/stored_jobs.h"

namespace cairn {
namespace {

constexpr absl::Duration kFirstLook = absl::Seconds(10);

}  // namespace

Mirror::Mirror(MirrorOptions options, CheckpointStore& root, const Clock& clock)
    : options_(std::move(options)),
      root_(root),
      clock_(clock),
      place_(std::make_shared<MirrorPlace>(options_.address, options_.root, options_.open, root.storage())),
      view_(options_.address, options_.rule, options_.patience),
      turns_(clock),
      orders_(clock),
      look_([this](const std::string& job, const std::vector<int64_t>& steps) { Look(job, steps); }),
      reader_(place_, root, view_, options_.patience, clock, look_),
      marks_(root.storage(), view_, orders_, clock, options_.mark_root, look_),
      upkeep_(root, view_, reader_, options_.rule.keep_last, clock.SteadyNow() + options_.settle, clock, look_),
      changes_(place_, root, view_, reader_, marks_, turns_, options_.patience, clock, look_),
      copier_(place_, root, view_, turns_, {options_.first_retry, options_.longest_retry, options_.step_retry}, clock,
              look_) {}

Mirror::~Mirror() {
  for (std::thread* thread : {&looking_, &copying_}) {
    if (thread->joinable()) thread->join();
  }
}

absl::Status Mirror::Start() {
  {
    MutexLock lock(mutex_);
    running_ = 2;
  }
  auto looker = StartThread("to look after the mirror", [this] { RunLooks(); });
  if (looker.ok()) looking_ = *std::move(looker);
  auto copier =
      looker.ok() ? StartThread("to copy checkpoints to the mirror", [this] { RunCopies(); }) : looker.status();
  if (copier.ok()) {
    copying_ = *std::move(copier);
    return absl::OkStatus();
  }
  stop_ = true;
  copier_.Stop();
  MutexLock lock(mutex_);
  running_ -= looker.ok() ? 1 : 2;
  changed_.NotifyAll();
  return copier.status();
}

bool Mirror::Stop(absl::Duration patience) {
  stop_ = true;
  copier_.Stop();
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
  for (std::thread* thread : {&looking_, &copying_}) {
    if (thread->joinable()) thread->join();
  }
  while (!reader_.IsIdle()) {
    if (clock_.SteadyNow() >= deadline) return false;
    absl::SleepFor(absl::Milliseconds(5));
  }
  return true;
}

void Mirror::Look(const std::string& job) {
  view_.NoteAnyChanged(job, clock_.SteadyNow());
  Look(job, {});
}

void Mirror::Look(const std::string& job, const std::vector<int64_t>& steps) {
  for (const int64_t step : steps) view_.NoteChanged(job, step, clock_.SteadyNow());
  MutexLock lock(mutex_);
  if (std::find(due_.begin(), due_.end(), job) == due_.end()) due_.push_back(job);
  changed_.NotifyAll();
}

void Mirror::NoteDeleted(const std::string& job, const std::vector<StoredAttempt>& deleted) {
  for (const StoredAttempt& attempt : deleted) {
    view_.NoteDeleted(job, attempt, clock_.SteadyNow());
  }
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
    if (clock_.SteadyNow() >= rest && copier_.CopyNext(next)) {
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

absl::Status Mirror::OfMirror(const absl::Status& status) const {
  // The storage's own advice is better.
  const std::string next = absl::StrCat("The coordinator tries again. Look at the storage of ", options_.address, ".");
  const bool is_named = absl::StrContains(status.message(), options_.address);
  return WithMetadata(is_named ? status : Annotate(status, absl::StrCat("the mirror ", options_.address)),
                      {{"next", next}});
}

absl::Status Mirror::LookForJobs(const MirrorPlace::Held& held) {
  for (Storage* storage : {&root_.storage(), held.side->storage.get()}) {
    CAIRN_ASSIGN_OR_RETURN(const std::vector<std::string> jobs, FindJobs(*storage));
    for (const std::string& job : jobs) Look(job);
  }
  return absl::OkStatus();
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

absl::Status Mirror::Work(bool& worked) {
  const std::shared_ptr<const MirrorPlace::Held> before = place_->held();
  const auto held = place_->Hold();
  const bool is_new = held.ok() && place_->held() != before;
  if (before != nullptr && place_->held() != before) copier_.Interrupt();
  if (is_new) {
    view_.NoteAnyJobChanged(clock_.SteadyNow());
    jobs_found_ = false;  // another place may be mounted there now
  }
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

absl::Status Mirror::LookAt(const MirrorPlace::Held& held, const std::string& job) {
  const Turns::Turn turn(turns_, "");
  CAIRN_ASSIGN_OR_RETURN(MirrorReading reading,
                         reader_.ReadBoth(*held.side, job, view_.ToRead(job, clock_.SteadyNow())));
  view_.Note(job, std::move(reading), clock_.SteadyNow());
  const auto [records, work] = view_.RecordsOf(job);
  view_.BeginAsking();
  // Deletions come before marks that are to be set, because they make room.
  MirrorMarks::Marks taken;
  absl::Status undone = marks_.Take(held, job, records, taken);
  undone.Update(upkeep_.Delete(held, job, records, work));
  upkeep_.CheckOnlyThere(held, job, records);
  undone.Update(upkeep_.Clean(held, job, records, work));
  undone.Update(marks_.Copy(held, job, records, taken));
  if (undone.ok() || stop_) return absl::OkStatus();
  view_.NoteAnyChanged(job, clock_.SteadyNow() + options_.longest_retry);
  if (view_.NoteUndone(job, OfMirror(undone))) {
    Log(LogLevel::kWarn, "mirror_failed", {{"mirror", options_.address}, {"job", job}, {"error", undone}});
  }
  return absl::OkStatus();
}

}  // namespace cairn

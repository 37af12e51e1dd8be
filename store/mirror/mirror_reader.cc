#include "store/mirror/mirror_reader.h"

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/resources/memory.h"
#include "common/resources/thread.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "store/mirror/same_files.h"

namespace cairn {
namespace {

// So long rules wait for a look at a copy.
constexpr absl::Duration kLookPatience = absl::Seconds(3);

}  // namespace

absl::StatusOr<std::shared_ptr<MirrorPlace::Side>> MirrorReader::ToRead(const std::string& job,
                                                                        absl::Duration patience) {
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
      absl::StrCat("the mirror ", place_->address(), " has not answered for ", absl::FormatDuration(patience)),
      {{"job", job}, {"next", absl::StrCat("Try again. See whether the storage of ", place_->address(), " answers.")}});
}

absl::StatusOr<MirrorReading> MirrorReader::ReadBoth(MirrorPlace::Side& side, const std::string& job,
                                                     std::optional<std::vector<int64_t>> steps) {
  MirrorReading reading = {clock_.SteadyNow(), std::move(steps), {}};
  const auto read = [&](CheckpointStore& from) {
    return reading.steps.has_value() ? from.ReadSteps(job, *reading.steps) : from.ReadJob(job);
  };
  CAIRN_ASSIGN_OR_RETURN(reading.records.mirror, read(side.checkpoints));
  auto root = read(root_);
  if (!root.ok()) {
    const std::string& name = root_.storage().root();
    return WithMetadata(Annotate(root.status(), absl::StrCat(job, " at the root")),
                        {{"next", absl::StrCat("The coordinator tries again. Look at the storage of ", name, ".")}});
  }
  reading.records.root = *std::move(root);
  return reading;
}

absl::StatusOr<MirrorReader::Found> MirrorReader::Find(const std::string& job, int64_t step) {
  CAIRN_ASSIGN_OR_RETURN(const std::shared_ptr<MirrorPlace::Side> side, ToRead(job, patience_));
  const StepRecord root = root_.ReadStep(job, step);
  const StepRecord there = side->checkpoints.ReadStep(job, step);
  for (const StepRecord* record : {&root, &there}) {
    CAIRN_RETURN_IF_ERROR(record->unlisted);
    CAIRN_RETURN_IF_ERROR(record->unread());
  }
  CAIRN_RETURN_IF_ERROR(there.damage());
  const MirrorStep joined = MirrorStepOf(&root, &there);
  if (!joined.loadable()) return CheckpointStore::NotCommitted(job, step, std::nullopt);
  return Held(*side, job, joined, &root);
}

absl::StatusOr<MirrorReader::Found> MirrorReader::FindLatest(const std::string& job, bool fallback,
                                                             const std::set<int64_t>& damaged) {
  CAIRN_ASSIGN_OR_RETURN(const std::shared_ptr<MirrorPlace::Side> side, ToRead(job, patience_));
  CAIRN_ASSIGN_OR_RETURN(const MirrorReading reading, ReadBoth(*side, job));
  view_.Note(job, reading, clock_.SteadyNow());
  const MirrorRecords& records = reading.records;
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
      auto found = Held(*side, job, step, root);
      if (found.ok()) {
        found->passed_over = std::move(passed_over);
        return found;
      }
      const bool is_another = HasReason(found.status(), Reason::kNotCommitted);
      if (!IsProvenDamage(found.status()) && !is_another) return found.status();
      if (!step.at_root) why = found.status();
    }
    if (!fallback) return why;
    passed_over.emplace_back(step.step, std::move(why));
  }
  if (!passed_over.empty()) return passed_over.front().second;
  return CheckpointStore::NotCommitted(job, std::nullopt, std::nullopt);
}

absl::StatusOr<MirrorReader::Found> MirrorReader::Held(MirrorPlace::Side& side, const std::string& job,
                                                       const MirrorStep& joined, const StepRecord* root) {
  const int64_t step = joined.step;
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
  if (valid.ok() || IsProvenDamage(valid.status())) {
    view_.NoteChecked({job, step}, valid.status(), clock_.SteadyNow());
  }
  CAIRN_RETURN_IF_ERROR(valid.status());
  if (joined.by_number && joined.at_root) {
    CAIRN_ASSIGN_OR_RETURN(const SameFiles same, CompareFiles(root_, *root, **valid));
    if (same == SameFiles::kNo) return CheckpointStore::NotCommitted(job, step, std::nullopt);
  }
  found.manifest = *std::move(valid);
  found.directory = absl::StrCat(place_->address(), "/", job);
  return found;
}

bool MirrorReader::InUse(const std::string& job, int64_t step) const {
  MutexLock lock(mutex_);
  const auto found = loads_.find({job, step});
  return found != loads_.end() && !found->second.expired();
}

bool MirrorReader::MayRulesDelete(const std::string& job, int64_t step) {
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
  if (joined.by_number) return false;
  if (joined.copy != MirrorStep::Copy::kSame || joined.unread) {
    look_(job, {step});
    return false;
  }
  view_.NoteChecked({job, step}, whole, clock_.SteadyNow());
  if (!whole.ok()) look_(job, {});  // and it is copied again
  return whole.ok();
}

}  // namespace cairn

#include "store/mirror/mirror_marks.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "store/mirror/mirror_step.h"
#include "store/read/step_marks.h"
#include "store/write/mark_store.h"

namespace cairn {
namespace {

// So many marks wait to be taken away. A mark that is left only keeps a copy longer.
constexpr size_t kMaxUnmarked = 1000;

bool HasTag(const StepRecord& step, const std::string& tag) {
  return std::find(step.tags.begin(), step.tags.end(), tag) != step.tags.end();
}

}  // namespace

void MirrorMarks::Unmark(const std::string& job, int64_t step, const std::string& tag) {
  {
    MutexLock lock(mutex_);
    if (unmarked_.size() < kMaxUnmarked) unmarked_.emplace(job, step, tag);
  }
  look_(job, {step});
}

void MirrorMarks::Remark(const std::string& job, int64_t step, const std::string& tag) {
  MutexLock lock(mutex_);
  unmarked_.erase({job, step, tag});
}

absl::Status MirrorMarks::Take(const MirrorPlace::Held& held, const std::string& job, const MirrorRecords& records,
                               Marks& taken) {
  std::set<std::tuple<std::string, int64_t, std::string>> unmarked;
  {
    MutexLock lock(mutex_);
    unmarked = unmarked_;
  }
  MarkStore marks(*held.side->storage, clock_, *held.lock);
  absl::Status undone;
  for (const auto& one : unmarked) {
    const auto& [of, step, tag] = one;
    if (of != job) continue;
    taken.emplace(step, tag);
    // Somebody may have set the mark anew.
    const auto set = ReadMark(root_, job, step, tag);
    const StepRecord* copy = FindStep(records.mirror, step);
    absl::Status cleared = set.status();
    if (set.ok() && !set->has_value() && copy != nullptr && (tag.empty() ? copy->pinned : HasTag(*copy, tag))) {
      cleared = marks.Clear(job, step, tag);
      if (cleared.ok()) look_(job, {step});  // for a copy that the mark had kept
    }
    undone.Update(cleared);
    if (!cleared.ok()) continue;
    MutexLock lock(mutex_);
    unmarked_.erase(one);
  }
  for (const StepRecord& mirror : records.mirror) {
    const StepRecord* root = FindStep(records.root, mirror.step);
    if (root == nullptr || !MirrorStepOf(root, &mirror).unwanted()) continue;
    if (mirror.pinned || !mirror.tags.empty()) view_.NoteChanged(job, mirror.step, clock_.SteadyNow());
    if (mirror.pinned) undone.Update(marks.Clear(job, mirror.step, ""));
    for (const std::string& tag : mirror.tags) undone.Update(marks.Clear(job, mirror.step, tag));
  }
  return undone;
}

absl::Status MirrorMarks::Copy(const MirrorPlace::Held& held, const std::string& job, const MirrorRecords& records,
                               const Marks& taken) {
  absl::Status undone;
  const auto has_tag = [&](const std::vector<StepRecord>& steps, const std::string& tag) {
    return std::any_of(steps.begin(), steps.end(), [&](const StepRecord& step) { return HasTag(step, tag); });
  };
  for (const StepRecord& mirror : records.mirror) {
    const StepRecord* root = FindStep(records.root, mirror.step);
    // What only the mirror has, has its own.
    if (root == nullptr || mirror.state() != StepRecord::State::kCommitted) continue;
    const MirrorStep step = MirrorStepOf(root, &mirror);
    if (step.unread || !step.at_root) continue;
    if (root->pinned && !mirror.pinned) undone.Update(CopyOne(held, job, mirror.step, ""));
    for (const std::string& tag : root->tags) {
      // A tag names one step. The one that has it at the mirror keeps it, and is protected by it.
      if (!has_tag(records.mirror, tag)) undone.Update(CopyOne(held, job, mirror.step, tag));
    }
    // A step that only the mirror had was saved anew. Its marks are the step's, and not the copy's.
    if (step.copy != MirrorStep::Copy::kReplaced) continue;
    if (mirror.pinned && !root->pinned && !taken.contains({mirror.step, ""})) {
      undone.Update(CopyToRoot(job, mirror.step, ""));
    }
    for (const std::string& tag : mirror.tags) {
      if (has_tag(records.root, tag) || taken.contains({mirror.step, tag})) continue;
      undone.Update(CopyToRoot(job, mirror.step, tag));
    }
  }
  return undone;
}

absl::Status MirrorMarks::CopyOne(const MirrorPlace::Held& held, const std::string& job, int64_t step,
                                  const std::string& tag) {
  const auto text = ReadMark(root_, job, step, tag);
  if (!text.ok()) {
    const std::string what = tag.empty() ? "the pin" : absl::StrCat("the tag ", tag);
    return WithMetadata(
        Annotate(text.status(), absl::StrCat(what, " of ", job, "@", step, " is not copied")),
        {{"next", "The file is at the root: correct it, or take the mark away and set it again. It is tried again."}});
  }
  view_.NoteChanged(job, step, clock_.SteadyNow());
  if (!text->has_value()) return absl::OkStatus();  // it was taken away meanwhile
  return MarkStore(*held.side->storage, clock_, *held.lock).Set(job, step, tag, **text);
}

absl::Status MirrorMarks::CopyToRoot(const std::string& job, int64_t step, const std::string& tag) {
  if (mark_root_ == nullptr) return absl::OkStatus();
  const Turns::Turn order(orders_, job);
  {
    MutexLock lock(mutex_);
    if (unmarked_.contains({job, step, tag})) return absl::OkStatus();
  }
  view_.NoteChanged(job, step, clock_.SteadyNow());
  return tag.empty() ? mark_root_(job, {PinStep{step, true, "pinned at the mirror"}})
                     : mark_root_(job, {TagStep{tag, step}});
}

}  // namespace cairn

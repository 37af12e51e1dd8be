#include "store/write/deletion_store.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/format/checkpoint_path.h"
#include "common/format/outcome.h"
#include "common/resources/thread.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "store/write/attempt_store.h"
#include "store/write/changed_record.h"

namespace cairn {
namespace {

constexpr size_t kMaxCauseBytes = 512;

absl::Status LastCheckpoint(const std::string& job, int64_t step) {
  return MakeError(Reason::kLastCheckpoint,
                   absl::StrCat(job, "@", step, " is not deleted: the job has no other valid checkpoint"),
                   {{"job", job}, {"step", absl::StrCat(step)}});
}

absl::Status CommittedMeanwhile(const std::string& job, int64_t step) {
  return MakeError(Reason::kStorageError, absl::StrCat(job, "@", step, " was committed while it was looked at"),
                   {{"job", job}, {"step", absl::StrCat(step)}, {"next", "Repeat the command."}});
}

}  // namespace

absl::Status DeletionStore::CheckStands(const std::string& job, int64_t step) {
  // Between two reads the step may be committed.
  constexpr int kTries = 3;
  for (int tries = 0; tries < kTries; ++tries) {
    const StepRecord record = checkpoints_.ReadStep(job, step);
    CAIRN_RETURN_IF_ERROR(record.unlisted);
    if (record.state() != StepRecord::State::kNothing) return absl::OkStatus();
    CAIRN_RETURN_IF_ERROR(checkpoints_.SharedManifest(job, step).status());
  }
  return CommittedMeanwhile(job, step);
}

std::optional<int64_t> DeletionStore::FindValid(const std::string& job, std::optional<int64_t> latest,
                                                std::optional<int64_t> except) {
  if (latest.has_value() && latest != except && checkpoints_.IsValid(job, *latest)) return latest;
  return checkpoints_.NewestValid(job, except);
}

absl::Status DeletionStore::Together(std::initializer_list<std::function<absl::Status()>> calls) {
  return ForEachOnThreads("to delete a checkpoint", calls.size(), storage_.CallsAtOnce(),
                          [&](size_t number, int) { return calls.begin()[number](); });
}

absl::StatusOr<std::optional<int64_t>> DeletionStore::Settled(const std::string& job,
                                                              std::optional<int64_t> remaining) {
  if (remaining.has_value()) CAIRN_RETURN_IF_ERROR(storage_.Sync(StepDirectory(job, *remaining)));
  return remaining;
}

absl::StatusOr<ChangedSteps> DeletionStore::Delete(const std::string& job, const DeleteStep& action,
                                                   std::optional<int64_t> latest) {
  return DeleteLeaving(job, action, [&]() -> absl::StatusOr<std::optional<int64_t>> {
    if (action.left_elsewhere.has_value()) return action.left_elsewhere;
    return Settled(job, FindValid(job, latest, action.step));
  });
}

absl::StatusOr<ChangedSteps> DeletionStore::DeleteLeaving(const std::string& job, const DeleteStep& action,
                                                          const Remains& remains) {
  CAIRN_RETURN_IF_ERROR(CheckJobName(job));
  CAIRN_RETURN_IF_ERROR(CheckStep(action.step));
  StepRecord record;
  // It is looked for in advance where that takes no longer.
  std::optional<absl::StatusOr<std::optional<int64_t>>> found;
  CAIRN_RETURN_IF_ERROR(Together({[&] { return root_.Check(); },
                                  [&] {
                                    record = checkpoints_.ReadStep(job, action.step);
                                    return record.unlisted;
                                  },
                                  [&] {
                                    if (storage_.CallsAtOnce() > 1) found = remains();
                                    return absl::OkStatus();
                                  }}));
  ChangedSteps changed;
  std::vector<const StoredAttempt*> doomed;
  for (const StoredAttempt& attempt : record.attempts) {
    if (attempt.deleted) {
      changed.deleted.push_back(attempt);
      changed.deleted_before.push_back(attempt.attempt);
    }
    // An attempt that cannot be read today may be a checkpoint tomorrow.
    if (attempt.damaged && !IsProvenDamage(attempt.error)) return attempt.error;
    if (attempt.stands() || attempt.damaged) {
      doomed.push_back(&attempt);
    }
  }
  if (doomed.empty() && changed.deleted.empty()) {
    const auto manifest = checkpoints_.SharedManifest(job, action.step);
    return manifest.ok() ? CommittedMeanwhile(job, action.step) : manifest.status();
  }
  // An earlier coordinator may have put a record and ended before its fsync.
  CAIRN_RETURN_IF_ERROR(storage_.Sync(StepDirectory(job, action.step)));
  if (doomed.empty()) return changed;
  CAIRN_RETURN_IF_ERROR(record.Protection(job));
  if (!found.has_value()) found = remains();
  CAIRN_ASSIGN_OR_RETURN(const std::optional<int64_t> remaining, *found);
  const bool is_itself = remaining == action.step && !action.left_elsewhere.has_value();
  if (!remaining.has_value() || is_itself) return LastCheckpoint(job, action.step);
  CAIRN_RETURN_IF_ERROR(root_.RaiseFormat());
  // Attempts ascend, so the attempt that decides the step's state is deleted last.
  for (const StoredAttempt* attempt : doomed) {
    CAIRN_ASSIGN_OR_RETURN(StoredAttempt summary, PutDeletion(job, action, *attempt, *remaining));
    changed.deleted.push_back(std::move(summary));
  }
  return changed;
}

absl::StatusOr<ChangedSteps> DeletionStore::Delete(const std::string& job, const DeleteReplaced& action) {
  CAIRN_RETURN_IF_ERROR(root_.Check());
  const StepRecord record = checkpoints_.ReadStep(job, action.step);
  CAIRN_RETURN_IF_ERROR(record.unlisted);
  ChangedSteps changed;
  const StoredAttempt* standing = record.deciding();
  if (standing == nullptr || !record.Protection(job).ok() || !checkpoints_.IsValid(job, action.step)) return changed;
  CAIRN_RETURN_IF_ERROR(storage_.Sync(StepDirectory(job, action.step)));
  const std::string cause = absl::StrCat("attempt ", standing->attempt, " took its place");
  for (const StoredAttempt& attempt : record.attempts) {
    if (attempt.attempt >= standing->attempt) break;
    if (attempt.deleted && attempt.directory) changed.deleted.push_back(attempt);
    if (!attempt.stands()) continue;
    CAIRN_RETURN_IF_ERROR(root_.RaiseFormat());
    CAIRN_ASSIGN_OR_RETURN(StoredAttempt summary,
                           PutDeletion(job, {action.step, cause, /*by_rules=*/true}, attempt, action.step));
    changed.deleted.push_back(std::move(summary));
  }
  return changed;
}

absl::StatusOr<StoredAttempt> DeletionStore::PutDeletion(const std::string& job, const DeleteStep& action,
                                                         const StoredAttempt& attempt, int64_t remaining) {
  const int64_t step = action.step;
  Deletion deletion;
  deletion.job = job;
  deletion.step = step;
  deletion.attempt = attempt.attempt;
  deletion.cause = action.cause.substr(0, kMaxCauseBytes);
  deletion.by_rules = action.by_rules;
  deletion.time = clock_.WallNow();
  deletion.remaining_step = remaining;
  if (attempt.stands()) {
    deletion.request_id = attempt.request_id;
    deletion.bytes = attempt.bytes;
    deletion.world_size = attempt.world_size;
    deletion.commit_time = attempt.time;
  }
  const std::string bytes = EncodeDeletion(deletion);
  const std::string path = DeletionPath(job, step, attempt.attempt);
  CAIRN_RETURN_IF_ERROR(root_.Check());
  PutResult result = storage_.TryPutIfAbsent(path, bytes);
  if (HasReason(result.put.status(), Reason::kNoSpace) && !result.in_doubt) {
    // A deletion makes room, so it must succeed on a full disk.
    AttemptStore::ReleaseReserve(storage_);
    result = storage_.TryPutIfAbsent(path, bytes);
  }
  // kExists may mean our own record: over a network, `link` may say "exists" of a name that it has just made itself.
  const StoredAttempt standing = checkpoints_.ReadAttempt(job, step, attempt.attempt);
  if (result.put.ok()) {
    if (standing.deleted) return standing;
    return UnknownOutcome(standing.damaged
                              ? standing.error
                              : MakeError(Reason::kStorageError,
                                          absl::StrCat(storage_.FullPath(path), " was put and is not there"),
                                          {{"job", job}, {"step", absl::StrCat(step)}, {"file", path}}));
  }
  if (!standing.deleted && !standing.damaged && !standing.unfinished && !result.in_doubt) return result.put.status();
  if (!standing.deleted) return UnknownOutcome(result.put.status());
  CAIRN_RETURN_IF_ERROR(SettleChange(storage_, path, result.put.status()));
  return standing;
}

absl::StatusOr<ChangedSteps> DeletionStore::Pin(const std::string& job, const PinStep& action) {
  CAIRN_RETURN_IF_ERROR(root_.Check());
  CAIRN_RETURN_IF_ERROR(CheckStands(job, action.step));
  const std::string text = absl::StrCat(action.note.substr(0, kMaxCauseBytes), "\n");
  CAIRN_RETURN_IF_ERROR(action.pinned ? marks_.Set(job, action.step, "", text) : marks_.Clear(job, action.step, ""));
  return ChangedSteps{};
}

absl::Status DeletionStore::TagIsTaken(const std::string& job, const std::string& tag, int64_t step) {
  const std::string name = absl::StrCat(job, "@", tag);
  return MakeError(Reason::kBadRequest, absl::StrCat(name, " is step ", step, " already"),
                   {{"job", job},
                    {"step", absl::StrCat(step)},
                    {"tag", tag},
                    {"next", absl::StrCat("Run `cairn untag ", name, "` first, or choose another name.")}});
}

absl::StatusOr<ChangedSteps> DeletionStore::Tag(const std::string& job, const TagStep& action) {
  CAIRN_RETURN_IF_ERROR(CheckTag(action.tag));
  if (!action.step.has_value()) return Untag(job, action.tag);
  CAIRN_RETURN_IF_ERROR(root_.Check());
  CAIRN_RETURN_IF_ERROR(CheckStands(job, *action.step));
  CAIRN_ASSIGN_OR_RETURN(const std::vector<StepRecord> steps, checkpoints_.ReadCheckpoints(job));
  for (const StepRecord& step : steps) {
    if (step.step == *action.step || std::find(step.tags.begin(), step.tags.end(), action.tag) == step.tags.end()) {
      continue;
    }
    return TagIsTaken(job, action.tag, step.step);
  }
  const std::string text =
      absl::StrCat(absl::FormatTime(absl::RFC3339_sec, clock_.WallNow(), absl::UTCTimeZone()), "\n");
  CAIRN_RETURN_IF_ERROR(marks_.Set(job, *action.step, action.tag, text));
  return ChangedSteps{};
}

absl::StatusOr<ChangedSteps> DeletionStore::Untag(const std::string& job, const std::string& tag) {
  CAIRN_ASSIGN_OR_RETURN(const std::vector<StepRecord> steps, checkpoints_.ReadCheckpoints(job));
  CAIRN_RETURN_IF_ERROR(root_.Check());
  ChangedSteps changed;
  for (const StepRecord& step : steps) {
    if (std::find(step.tags.begin(), step.tags.end(), tag) == step.tags.end()) continue;
    CAIRN_RETURN_IF_ERROR(marks_.Clear(job, step.step, tag));
    changed.untagged.push_back(step.step);
  }
  return changed;
}

absl::StatusOr<ChangedSteps> DeletionStore::SetPolicy(const std::string& job, const SetRetention& action) {
  CAIRN_RETURN_IF_ERROR(root_.Check());
  CAIRN_RETURN_IF_ERROR(marks_.SetPolicy(job, action.policy));
  ChangedSteps changed;
  changed.policy = action.policy;
  return changed;
}

absl::StatusOr<ChangedSteps> DeletionStore::Prune(const std::string& job, const PruneSteps& action) {
  CAIRN_RETURN_IF_ERROR(root_.Check());
  ChangedSteps changed;
  if (action.policy.has_value()) {
    changed.policy = *action.policy;
  } else {
    CAIRN_ASSIGN_OR_RETURN(changed.policy, marks_.ReadPolicy(job));
  }
  if (changed.policy.empty()) return changed;
  const absl::Time end = clock_.SteadyNow() + kPruneTime;
  CAIRN_ASSIGN_OR_RETURN(const std::vector<StepRecord> steps, checkpoints_.ReadCheckpoints(job, action.steps));
  const JobLineage lineage = LineageOf(steps);
  std::vector<PruneCandidate> candidates;
  for (const StepRecord& step : steps) {
    const bool in_use = std::find(action.in_use.begin(), action.in_use.end(), step.step) != action.in_use.end();
    const bool damaged = step.state() == StepRecord::State::kDamaged;
    const bool awaits_mirror = action.awaits_mirror != nullptr && action.awaits_mirror(step.step);
    candidates.push_back({step.step, damaged, step.pinned, !step.tags.empty(), in_use, awaits_mirror,
                          lineage.superseded().contains(step.step),
                          damaged ? std::vector<Metric>() : step.deciding()->metrics,
                          !damaged && !step.deciding()->alarms.empty()});
  }
  changed.choices =
      ChoosePruned(candidates, changed.policy, [&](int64_t step) { return checkpoints_.IsValid(job, step); });
  const std::string cause = absl::StrCat(
      action.policy.has_value() ? "cairn prune" : "policy of the job",
      changed.policy.keep_last > 0 ? absl::StrCat(", keep last ", changed.policy.keep_last) : "",
      changed.policy.keep_every > 0 ? absl::StrCat(", keep every ", changed.policy.keep_every) : "",
      changed.policy.keep_best.has_value() ? absl::StrCat(", keep best ", ToString(*changed.policy.keep_best)) : "");
  // It is looked for once, because it cannot change: steps on which the training builds stay, and no other deletion of
  // the job runs now.
  std::optional<absl::StatusOr<std::optional<int64_t>>> remaining;
  const Remains remains = [&] {
    if (!remaining.has_value()) remaining = Settled(job, FindValid(job, lineage.latest()));
    return *remaining;
  };
  std::optional<int64_t> tried = action.after;
  for (PruneChoice& choice : changed.choices) {
    if (!choice.prune || (tried.has_value() && choice.step <= *tried)) continue;
    if (tried != action.after && clock_.SteadyNow() >= end) {
      changed.stopped_after = tried;
      break;
    }
    tried = choice.step;
    if (!checkpoints_.IsValid(job, choice.step)) {
      choice.prune = false;
      choice.why = "damaged";
      continue;
    }
    if (action.dry_run) continue;
    // What still awaits the mirror is one too many to wait for.
    const auto candidate = std::find_if(candidates.begin(), candidates.end(),
                                        [&](const PruneCandidate& one) { return one.step == choice.step; });
    if (action.is_safe_elsewhere != nullptr && !candidate->awaits_mirror && !action.is_safe_elsewhere(choice.step)) {
      choice.prune = false;
      choice.why = "no whole copy was found at the mirror";
      continue;
    }
    auto deleted = DeleteLeaving(job, {choice.step, cause, /*by_rules=*/true}, remains);
    if (HasReason(deleted.status(), Reason::kRootInUse) || OutcomeIsUnknown(deleted.status())) {
      if (changed.deleted.empty()) return deleted.status();
      changed.ended_by = deleted.status();
      for (PruneChoice& rest : changed.choices) {
        if (!rest.prune || rest.step < choice.step) continue;
        rest.prune = false;
        rest.why = rest.step == choice.step ? "it is not known whether it is deleted" : "the prune ended before it";
      }
      break;
    }
    if (!deleted.ok()) {
      choice.prune = false;
      choice.why = std::string(deleted.status().message());
      continue;
    }
    for (StoredAttempt& summary : deleted->deleted) changed.deleted.push_back(std::move(summary));
  }
  return changed;
}

absl::Status DeletionStore::Remove(const std::string& job, int64_t step, uint32_t attempt,
                                   std::optional<int64_t> latest) {
  StoredAttempt found;
  bool others = false;
  CAIRN_RETURN_IF_ERROR(Together({[&] { return root_.Check(); },
                                  [&] {
                                    found = checkpoints_.ReadAttempt(job, step, attempt);
                                    return absl::OkStatus();
                                  },
                                  [&] {
                                    others = FindValid(job, latest).has_value();
                                    return absl::OkStatus();
                                  }}));
  if (found.damaged) return found.error;
  if (!found.deleted) {
    return MakeError(Reason::kStepCommitted, absl::StrCat(job, "@", step, " attempt ", attempt, " is not deleted"),
                     {{"job", job}, {"step", absl::StrCat(step)}, {"attempt", absl::StrCat(attempt)}});
  }
  if (!others) return LastCheckpoint(job, step);
  return storage_.RemoveAll(AttemptDirectory(job, step, attempt));
}

}  // namespace cairn

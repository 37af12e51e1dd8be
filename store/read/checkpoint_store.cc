#include "store/read/checkpoint_store.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/format/checkpoint_path.h"
#include "common/resources/thread.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "store/read/step_marks.h"
#include "store/read/tags.h"

namespace cairn {
namespace {

// Bounds the memory of listings.
constexpr size_t kStepsListedAtOnce = 4096;

bool IsGone(const absl::Status& status) { return HasReason(status, Reason::kFileMissing); }

// Describes the attempts of a step that is not committed: "; attempt 1 was aborted: ...". Empty if there are none.
std::string WhatStands(const StepRecord& step) {
  std::string text;
  for (const StoredAttempt& record : step.attempts) {
    if (record.aborted()) {
      absl::StrAppend(&text, "; attempt ", record.attempt, " was aborted: ", record.error.message());
    } else if (record.deleted) {
      absl::StrAppend(&text, "; attempt ", record.attempt, " was committed once: ", record.error.message());
    } else if (record.unfinished) {
      absl::StrAppend(&text, "; the files of attempt ", record.attempt,
                      " stand there without an outcome: its save goes on, or it never ended, or its outcome is lost");
    }
  }
  return text;
}

// Says what a person can do about such a step. Empty: the text of the table of reasons fits.
std::string NextForWhatStands(std::string_view job, const StepRecord& step, const std::string& directory) {
  if (std::none_of(step.attempts.begin(), step.attempts.end(),
                   [](const StoredAttempt& record) { return record.unfinished; })) {
    return "";
  }
  // A person who has lost an outcome must learn it here: when the next coordinator starts, it is too late.
  return absl::StrCat("If a save of this step goes on, wait for it: `cairn status ", std::string(job),
                      "`. If its outcome was lost, stop the coordinator and put the outcome back from a copy, or copy ",
                      directory, " away, before a coordinator starts again: that removes these files.");
}

constexpr std::string_view kNoCheckpointAction =
    "A job's first start has no checkpoint. If it should have one, check its name and the root: `cairn jobs` lists the "
    "jobs.";

}  // namespace

absl::StatusOr<std::vector<int64_t>> CheckpointStore::Steps(std::string_view job) {
  CAIRN_RETURN_IF_ERROR(CheckJobName(job));
  const auto entries = storage_.List(job);
  std::vector<int64_t> steps;
  if (!entries.ok()) {
    if (IsGone(entries.status())) return steps;
    return entries.status();
  }
  // In a directory anything with a step's name counts, so that a link or a file with this name is reported and not
  // ignored. In an object store an object with that name may stand beside the step, and means nothing.
  for (const Storage::Entry& entry : *entries) {
    if (!entry.directory && storage_.ListsExactly()) continue;
    if (const auto step = ParseStepName(entry.name)) steps.push_back(*step);
  }
  return steps;  // names sort as numbers do
}

StepRecord CheckpointStore::ReadStep(std::string_view job, int64_t step) {
  absl::Status valid = CheckJobName(job);
  valid.Update(CheckStep(step));
  if (!valid.ok()) return {.step = step, .unlisted = std::move(valid)};
  return ReadListed(job, step, storage_.List(StepDirectory(job, step)));
}

absl::StatusOr<std::vector<StepRecord>> CheckpointStore::ReadSteps(std::string_view job,
                                                                   const std::vector<int64_t>& steps) {
  CAIRN_RETURN_IF_ERROR(CheckJobName(job));
  const int at_once = storage_.CallsAtOnce();
  // A step is read soon after it was listed.
  const size_t most = at_once == 1 ? 1 : kStepsListedAtOnce;
  std::vector<StepRecord> read(steps.size());
  for (size_t begin = 0; begin < steps.size(); begin += most) {
    std::vector<std::string> names;
    for (size_t i = begin; i < std::min(begin + most, steps.size()); ++i) names.push_back(StepName(steps[i]));
    const auto lists = storage_.ListEach(job, names);
    CAIRN_RETURN_IF_ERROR(ForEachOnThreads("to read checkpoints", names.size(), at_once, [&](size_t i, int) {
      read[begin + i] = ReadListed(job, steps[begin + i], lists[i]);
      return absl::OkStatus();
    }));
  }
  std::vector<StepRecord> records;
  for (StepRecord& record : read) {
    const std::string directory = StepDirectory(job, record.step);
    if (record.gone && IsListed(directory)) record.unlisted = Hidden(job, record.step, directory);
    if (!record.attempts.empty() || record.unfinished || !record.unlisted.ok()) records.push_back(std::move(record));
  }
  return records;
}

StepRecord CheckpointStore::ReadListed(std::string_view job, int64_t step,
                                       const absl::StatusOr<std::vector<Storage::Entry>>& entries) {
  StepRecord found;
  found.step = step;
  if (!entries.ok()) {
    if (!IsGone(entries.status())) found.unlisted = entries.status();
    found.gone = found.unlisted.ok();
    return found;
  }
  struct Names {
    bool outcome = false, deletion = false, directory = false;
  };
  std::map<uint32_t, Names> attempts;
  StepMarks marks;
  for (const Storage::Entry& entry : *entries) {
    if (const auto number = ParseOutcomeName(entry.name)) attempts[*number].outcome = true;
    if (const auto number = ParseDeletionName(entry.name)) attempts[*number].deletion = true;
    marks.Add(entry.name);
    found.unfinished |= entry.unfinished;
    if (const auto number = ParseAttemptName(entry.name); number.has_value() && entry.directory) {
      attempts[*number].directory = true;
    }
  }
  found.pinned = marks.pinned();
  found.tags = marks.tags();
  const AttemptRecords::Listing listing(*entries, storage_.ListsExactly());
  for (const auto& [number, names] : attempts) {
    StoredAttempt record = records_.Read(job, step, number, listing);
    record.directory = names.directory;
    // A record that was there when the names were listed and cannot be opened now was deleted, or storage hides it.
    std::string hidden;
    if (names.deletion && !record.deleted) hidden = DeletionPath(job, step, number);
    if (names.outcome && record.unfinished) hidden = OutcomePath(job, step, number);
    if (!hidden.empty() && !record.damaged && IsListed(hidden)) {
      record = {.step = step, .attempt = number, .damaged = true, .directory = names.directory};
      record.error = Hidden(job, step, hidden);
    }
    if (!record.unfinished || names.directory) found.attempts.push_back(std::move(record));
  }
  return found;
}

bool CheckpointStore::IsListed(const std::string& path) {
  const size_t slash = path.rfind('/');
  const auto entries = storage_.List(path.substr(0, slash));
  if (!entries.ok()) return !IsGone(entries.status());  // an error does not prove that the name is missing
  return std::any_of(entries->begin(), entries->end(),
                     [&](const Storage::Entry& entry) { return entry.name == path.substr(slash + 1); });
}

absl::Status CheckpointStore::Hidden(std::string_view job, int64_t step, const std::string& path) const {
  return MakeError(
      Reason::kStorageError,
      absl::StrCat(storage_.FullPath(path), " is listed in its directory, but storage says that there is no such file"),
      {{"job", std::string(job)},
       {"step", absl::StrCat(step)},
       {"file", path},
       {"next",
        "Try again. If it stays so, look at the file system: a client of a network file system may "
        "keep an old answer, which ends when it is mounted anew."}});
}

absl::StatusOr<std::vector<StepRecord>> CheckpointStore::ReadJob(std::string_view job) {
  CAIRN_ASSIGN_OR_RETURN(const std::vector<int64_t> steps, Steps(job));
  if (steps.size() >= AttemptRecords::kIndexAfter) records_.ReadIndex(job);
  return ReadSteps(job, steps);
}

absl::StatusOr<std::vector<StepRecord>> CheckpointStore::ReadCheckpoints(
    std::string_view job, const std::optional<std::vector<int64_t>>& among) {
  std::vector<StepRecord> records;
  if (!among.has_value()) {
    CAIRN_ASSIGN_OR_RETURN(records, ReadJob(job));
  } else {
    CAIRN_ASSIGN_OR_RETURN(records, ReadSteps(job, *among));
  }
  std::erase_if(records, [](const StepRecord& record) { return record.state() == StepRecord::State::kNothing; });
  return records;
}

absl::Status CheckpointStore::NotCommitted(std::string_view job, std::optional<int64_t> step,
                                           std::optional<int64_t> latest, const std::string& stands,
                                           const std::string& next) {
  const std::string name = step ? absl::StrCat(std::string(job), "@", *step) : std::string(job);
  ErrorMetadata metadata = {{"job", std::string(job)}};
  if (step) metadata.emplace_back("step", absl::StrCat(*step));
  // The job has no step at all, so its name or the root may be mistyped.
  const std::string action =
      latest ? absl::StrCat("`cairn list ", std::string(job), "` shows the committed steps; take one of these.")
             : std::string(kNoCheckpointAction);
  metadata.emplace_back("next", next.empty() ? action : next);
  return MakeError(
      Reason::kNotCommitted,
      absl::StrCat(name, " has no committed checkpoint; ",
                   latest ? absl::StrCat("the latest committed step is ", *latest) : std::string("the job has none"),
                   stands),
      metadata);
}

CheckpointStore::ManifestFile CheckpointStore::ManifestFileOf(std::string_view job, const StepRecord& committed) {
  const StoredAttempt& record = *committed.deciding();
  const auto path = record.repaired ? RepairedPath : OutcomePath;
  return {committed.step, record.attempt, path(job, committed.step, record.attempt), record.identity};
}

absl::StatusOr<CheckpointStore::ManifestFile> CheckpointStore::Find(std::string_view job, std::optional<int64_t> step) {
  CAIRN_RETURN_IF_ERROR(CheckJobName(job));
  std::string stands, next;
  if (step) {
    CAIRN_RETURN_IF_ERROR(CheckStep(*step));
    const StepRecord record = ReadStep(job, *step);
    CAIRN_RETURN_IF_ERROR(record.damage());
    if (record.state() == StepRecord::State::kCommitted) return ManifestFileOf(job, record);
    stands = WhatStands(record);
    next = NextForWhatStands(job, record, storage_.FullPath(StepDirectory(job, *step)));
  }
  CAIRN_ASSIGN_OR_RETURN(const std::vector<StepRecord> records, ReadCheckpoints(job));
  const JobLineage lineage = LineageOf(records);
  if (step) return NotCommitted(job, step, lineage.latest(), stands, next);
  for (size_t i = records.size(); i-- > 0;) {
    CAIRN_RETURN_IF_ERROR(records[i].damage());
    if (!lineage.superseded().contains(records[i].step)) return ManifestFileOf(job, records[i]);
  }
  return NotCommitted(job, step, std::nullopt, stands, next);
}

absl::StatusOr<std::optional<int64_t>> CheckpointStore::StepOf(const CheckpointName& name) {
  if (name.tag.empty()) return name.step;
  CAIRN_ASSIGN_OR_RETURN(const std::vector<StepRecord> records, ReadCheckpoints(name.job));
  std::vector<StepTags> tags;
  for (const StepRecord& record : records) {
    tags.push_back({record.step, record.tags, IsReadFailure(record.unlisted) ? record.unlisted : absl::OkStatus()});
  }
  CAIRN_ASSIGN_OR_RETURN(const int64_t step, FindTag(name.job, name.tag, tags));
  return step;
}

absl::StatusOr<Manifest> CheckpointStore::ReadManifest(std::string_view job, std::optional<int64_t> step) {
  CAIRN_ASSIGN_OR_RETURN(const ManifestFile file, Find(job, step));
  return records_.ReadManifest(job, file.step, file.attempt, file.path);
}

}  // namespace cairn

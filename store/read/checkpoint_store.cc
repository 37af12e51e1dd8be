#include "store/read/checkpoint_store.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/crc32c.h"
#include "common/format/checkpoint_path.h"
#include "common/resources/thread.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "store/read/record_index.h"
#include "store/read/step_marks.h"
#include "store/read/tags.h"

namespace cairn {
namespace {

// At most this many records are remembered; each takes a few hundred bytes.
constexpr size_t kMaxKnown = 100'000;
// A job of fewer steps has no index, and an index that lacks fewer records is not written anew: to read so many takes
// as long as one listing and one read, because they are read at once.
constexpr size_t kIndexAfter = 64;

// Bounds the memory of listings.
constexpr size_t kStepsListedAtOnce = 4096;

bool IsGone(const absl::Status& status) { return HasReason(status, Reason::kFileMissing); }

// A record says which attempt it ends, and must stand at that place: a copied or restored one would commit another's
// files.
absl::Status CheckPlace(std::string_view job, int64_t step, uint32_t attempt, const Outcome& outcome) {
  return std::visit(
      [&](const auto& record) -> absl::Status {
        if (record.job == job && record.step == step && record.attempt == attempt) return absl::OkStatus();
        return MakeError(Reason::kManifestCorrupt, absl::StrCat("it is the outcome of ", record.job, "@", record.step,
                                                                " attempt ", record.attempt));
      },
      outcome);
}

absl::StatusOr<Outcome> Decode(std::string_view job, int64_t step, uint32_t attempt, const Storage& storage,
                               const std::string& file, std::string_view bytes) {
  auto outcome = DecodeOutcome(bytes);
  absl::Status status = outcome.ok() ? CheckPlace(job, step, attempt, *outcome) : outcome.status();
  if (status.ok()) return outcome;
  return Annotate(status, file,
                  {{"job", std::string(job)},
                   {"step", absl::StrCat(step)},
                   {"attempt", absl::StrCat(attempt)},
                   {"file", file},
                   {"root", storage.root()}});
}

StoredAttempt Unfinished(int64_t step, uint32_t attempt) {
  return {.step = step, .attempt = attempt, .unfinished = true};
}

StoredAttempt Damaged(int64_t step, uint32_t attempt, absl::Status error) {
  return {.step = step, .attempt = attempt, .damaged = true, .error = std::move(error)};
}

StoredAttempt Ended(int64_t step, uint32_t attempt, const Outcome& outcome) {
  StoredAttempt found = {.step = step, .attempt = attempt};
  if (const auto* manifest = std::get_if<Manifest>(&outcome)) {
    found.committed = true;
    found.request_id = manifest->request_id;
    found.time = manifest->commit_time;
    found.bytes = manifest->total_bytes();
    found.world_size = manifest->world_size;
    found.plan_digest = manifest->plan_digest;
    found.lineage = manifest->lineage;
    found.metrics = manifest->metrics;
    found.alarms = manifest->alarms;
    return found;
  }
  const auto& abort_record = std::get<AbortRecord>(outcome);
  found.request_id = abort_record.request_id;
  found.time = abort_record.time;
  found.error =
      MakeError(ReasonFromName(abort_record.reason).value_or(Reason::kInternal), abort_record.message,
                {{"job", abort_record.job}, {"step", absl::StrCat(step)}, {"attempt", absl::StrCat(attempt)}});
  return found;
}

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

std::string UtcTime(absl::Time time) { return absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", time, absl::UTCTimeZone()); }

StoredAttempt Deleted(const Deletion& deletion) {
  StoredAttempt found = {.step = deletion.step, .attempt = deletion.attempt, .deleted = true};
  found.deleted_by_rules = deletion.by_rules;
  found.committed = deletion.of_a_commit();
  found.request_id = deletion.request_id;
  found.time = deletion.commit_time;
  found.bytes = deletion.bytes;
  found.world_size = deletion.world_size;
  found.error = MakeError(
      Reason::kNotCommitted,
      absl::StrCat(deletion.job, "@", deletion.step, " was deleted at ", UtcTime(deletion.time),
                   deletion.cause.empty() ? "" : absl::StrCat(" (", deletion.cause, ")"), "; step ",
                   deletion.remaining_step, " remained"),
      {{"job", deletion.job}, {"step", absl::StrCat(deletion.step)}, {"attempt", absl::StrCat(deletion.attempt)}});
  return found;
}

// Returns the record, or its error if it is damaged.
absl::StatusOr<StoredAttempt> Readable(StoredAttempt record) {
  if (record.damaged) return record.error;
  return record;
}

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

std::optional<StoredAttempt> CheckpointStore::Known(const std::string& path, const std::string& identity) {
  MutexLock lock(mutex_);
  const auto found = known_.find(path);
  if (found == known_.end() || found->second.identity != identity) return std::nullopt;
  return found->second;
}

void CheckpointStore::Remember(std::string_view job, const std::string& path, const StoredAttempt& record) {
  MutexLock lock(mutex_);
  if (known_.size() >= kMaxKnown) known_.clear();
  known_[path] = record;
  if (const auto indexed = not_indexed_.find(job); indexed != not_indexed_.end()) ++indexed->second;
}

void CheckpointStore::ReadIndex(std::string_view job) {
  if (!storage_.ListsExactly()) return;
  {
    MutexLock lock(mutex_);
    if (not_indexed_.contains(job)) return;
  }
  const auto bytes = storage_.Read(RecordIndexPath(job), kMaxRecordIndexBytes);
  auto index = bytes.ok() ? DecodeRecordIndex(job, *bytes) : bytes.status();
  MutexLock lock(mutex_);
  not_indexed_.try_emplace(std::string(job), 0);
  if (!index.ok() || known_.size() + index->size() > kMaxKnown) return;
  known_.merge(*index);  // what was read counts
}

void CheckpointStore::KeepIndex(const std::string& job) {
  RecordIndex index;
  {
    MutexLock lock(mutex_);
    const auto indexed = not_indexed_.find(job);
    if (indexed == not_indexed_.end() || indexed->second < kIndexAfter) return;
    indexed->second = 0;
    // Paths of steps begin with the job's; a job within this one has an index of its own.
    const std::string begin = absl::StrCat(job, "/");
    for (auto at = known_.lower_bound(begin); at != known_.end() && at->first.starts_with(begin); ++at) {
      const std::string_view below = std::string_view(at->first).substr(begin.size());
      if (!at->second.damaged && ParseStepName(below.substr(0, below.find('/'))).has_value()) index.insert(*at);
    }
  }
  const std::string bytes = EncodeRecordIndex(index);
  if (bytes.size() > kMaxRecordIndexBytes) return;
  const std::string path = RecordIndexPath(job);
  if (storage_.MakeDirectories(path.substr(0, path.rfind('/'))).ok()) storage_.PutReplacing(path, bytes).IgnoreError();
}

bool CheckpointStore::IsKnown(const std::string& path) {
  MutexLock lock(mutex_);
  return known_.contains(path);
}

const Storage::Entry* CheckpointStore::Listing::Find(std::string_view path) const {
  if (entries_ == nullptr) return nullptr;
  const std::string_view name = path.substr(path.rfind('/') + 1);
  const auto at = std::lower_bound(entries_->begin(), entries_->end(), name,
                                   [](const Storage::Entry& entry, std::string_view of) { return entry.name < of; });
  return at != entries_->end() && at->name == name ? &*at : nullptr;
}

std::string CheckpointStore::Listing::IdentityOf(std::string_view path) const {
  const Storage::Entry* entry = Find(path);
  return entry == nullptr ? "" : entry->identity;
}

absl::StatusOr<Storage::Content> CheckpointStore::LookAt(const std::string& path, const Listing& listing,
                                                         std::optional<StoredAttempt>& known) {
  if (listing.Lacks(path)) {
    const std::string file = storage_.FullPath(path);
    return MakeError(Reason::kFileMissing, absl::StrCat(file, " is not there"), {{"file", file}});
  }
  std::string identity = listing.IdentityOf(path);
  // To open a file may cost less than to read it, but never nothing.
  if (identity.empty() && IsKnown(path)) {
    CAIRN_ASSIGN_OR_RETURN(const auto file, storage_.Open(path));
    identity = file->identity();
  }
  if (!identity.empty()) {
    known = Known(path, identity);
    if (known.has_value()) return Storage::Content();
  }
  return storage_.ReadContent(path, kMaxOutcomeBytes, Cache::kUse);
}

absl::StatusOr<StoredAttempt> CheckpointStore::ReadRecord(std::string_view job, int64_t step, uint32_t attempt,
                                                          const std::string& path, const Listing& listing) {
  std::optional<StoredAttempt> known;
  auto content = LookAt(path, listing, known);
  if (known.has_value()) return Readable(*std::move(known));
  std::string identity;
  const auto outcome = DecodeSurely(job, step, attempt, path, std::move(content), identity);
  StoredAttempt record;
  if (outcome.ok()) {
    record = Ended(step, attempt, *outcome);
  } else if (HasReason(outcome.status(), Reason::kManifestCorrupt) ||
             HasReason(outcome.status(), Reason::kFormatTooNew)) {
    record = Damaged(step, attempt, outcome.status());
  } else {
    return outcome.status();  // another try may succeed
  }
  record.identity = std::move(identity);
  if (!record.identity.empty()) Remember(job, path, record);
  return Readable(std::move(record));
}

absl::StatusOr<Storage::Content> CheckpointStore::ReadSurely(
    const std::string& path, absl::StatusOr<Storage::Content> first,
    const std::function<absl::Status(const std::string& bytes)>& take) {
  std::optional<std::pair<size_t, uint32_t>> found;  // length and CRC32C
  absl::Status taken = first.ok() ? take(first->bytes) : first.status();
  if (taken.ok()) return first;
  const bool cut_off = HasReason(first.status(), Reason::kFileTruncated);
  if (!cut_off && !HasReason(taken, Reason::kManifestCorrupt)) return taken;
  if (first.ok()) found.emplace(first->bytes.size(), Crc32c(first->bytes.data(), first->bytes.size()));
  first = absl::CancelledError();  // gives its memory back
  // The bytes may have been damaged on their way here, so they are read once more.
  CAIRN_ASSIGN_OR_RETURN(Storage::Content again, storage_.ReadContent(path, kMaxOutcomeBytes, Cache::kBypass));
  taken = take(again.bytes);
  if (taken.ok()) return again;
  if (found == std::pair(again.bytes.size(), Crc32c(again.bytes.data(), again.bytes.size()))) return taken;
  return GaveOtherBytes(storage_.FullPath(path), "whether it is damaged");
}

absl::StatusOr<Outcome> CheckpointStore::DecodeSurely(std::string_view job, int64_t step, uint32_t attempt,
                                                      const std::string& path, absl::StatusOr<Storage::Content> first,
                                                      std::string& identity) {
  identity = first.ok() ? first->identity : "";
  std::optional<Outcome> found;
  CAIRN_ASSIGN_OR_RETURN(const Storage::Content read, ReadSurely(path, std::move(first), [&](const std::string& bytes) {
                           auto outcome = Decode(job, step, attempt, storage_, storage_.FullPath(path), bytes);
                           if (outcome.ok()) found = *std::move(outcome);
                           return outcome.status();
                         }));
  identity = read.identity;
  return *std::move(found);
}

std::optional<StoredAttempt> CheckpointStore::ReadDeletion(std::string_view job, int64_t step, uint32_t attempt,
                                                           const Listing& listing) {
  const std::string path = DeletionPath(job, step, attempt);
  std::optional<StoredAttempt> known;
  auto content = LookAt(path, listing, known);
  if (known.has_value()) return known;
  if (IsGone(content.status())) return std::nullopt;
  if (!content.ok() && !HasReason(content.status(), Reason::kFileTruncated)) {
    return Damaged(step, attempt, content.status());
  }
  std::optional<Deletion> found;
  const auto read = ReadSurely(path, std::move(content), [&](const std::string& bytes) -> absl::Status {
    CAIRN_ASSIGN_OR_RETURN(Deletion deletion, DecodeDeletion(bytes));
    if (deletion.job != job || deletion.step != step || deletion.attempt != attempt) {
      return MakeError(Reason::kManifestCorrupt, absl::StrCat("it is the deletion of ", deletion.job, "@",
                                                              deletion.step, " attempt ", deletion.attempt));
    }
    found = std::move(deletion);
    return absl::OkStatus();
  });
  if (read.ok()) {
    StoredAttempt record = Deleted(*found);
    record.identity = read->identity;
    Remember(job, path, record);
    MutexLock lock(mutex_);
    known_.erase(OutcomePath(job, step, attempt));  // it is not asked for any more
    return record;
  }
  const std::string name = storage_.FullPath(path);
  return Damaged(step, attempt,
                 Annotate(read.status(), name,
                          {{"job", std::string(job)},
                           {"step", absl::StrCat(step)},
                           {"attempt", absl::StrCat(attempt)},
                           {"file", name},
                           {"root", storage_.root()},
                           {"next", absl::StrCat("The attempt was deleted, and its files may be gone. If all of them "
                                                 "are there, move ",
                                                 name, " away; else load another step.")}}));
}

StoredAttempt CheckpointStore::ReadAttempt(std::string_view job, int64_t step, uint32_t attempt) {
  return ReadAttempt(job, step, attempt, Listing());
}

StoredAttempt CheckpointStore::ReadAttempt(std::string_view job, int64_t step, uint32_t attempt,
                                           const Listing& listing) {
  std::optional<StoredAttempt> deletion;
  absl::StatusOr<StoredAttempt> record;
  const absl::Status read =
      ForEachOnThreads("to read a record", 2, storage_.CallsAtOnce(), [&](size_t number, int) -> absl::Status {
        if (number == 1) {
          record = ReadRecord(job, step, attempt, OutcomePath(job, step, attempt), listing);
          return absl::OkStatus();
        }
        deletion = ReadDeletion(job, step, attempt, listing);
        return deletion.has_value() ? absl::CancelledError("the outcome does not count") : absl::OkStatus();
      });
  if (deletion.has_value()) return *std::move(deletion);
  if (!read.ok()) return Damaged(step, attempt, read);
  if (record.ok()) return *std::move(record);
  // A rebuilt manifest replaces an outcome that is damaged, or that was removed after the repair. It never replaces an
  // outcome that can be read.
  const auto repaired = ReadRecord(job, step, attempt, RepairedPath(job, step, attempt), listing);
  if (repaired.ok() && repaired->stands()) {
    StoredAttempt found = *repaired;
    found.repaired = true;
    return found;
  }
  return IsGone(record.status()) ? Unfinished(step, attempt) : Damaged(step, attempt, record.status());
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
  std::vector<StepRecord> records(steps.size());
  for (size_t begin = 0; begin < steps.size(); begin += most) {
    std::vector<std::string> names;
    for (size_t i = begin; i < std::min(begin + most, steps.size()); ++i) names.push_back(StepName(steps[i]));
    const auto lists = storage_.ListEach(job, names);
    CAIRN_RETURN_IF_ERROR(ForEachOnThreads("to read checkpoints", names.size(), at_once, [&](size_t i, int) {
      records[begin + i] = ReadListed(job, steps[begin + i], lists[i]);
      return absl::OkStatus();
    }));
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
  const Listing listing(*entries, storage_.ListsExactly());
  for (const auto& [number, names] : attempts) {
    StoredAttempt record = ReadAttempt(job, step, number, listing);
    record.directory = names.directory;
    // A record that was there when the names were listed and cannot be opened now was deleted, or storage hides it.
    std::string hidden;
    if (names.deletion && !record.deleted) hidden = DeletionPath(job, step, number);
    if (names.outcome && record.unfinished) hidden = OutcomePath(job, step, number);
    if (!hidden.empty() && !record.damaged && IsListed(hidden)) {
      record = Damaged(step, number, Hidden(job, step, hidden));
      record.directory = names.directory;
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
  if (steps.size() >= kIndexAfter) ReadIndex(job);
  CAIRN_ASSIGN_OR_RETURN(std::vector<StepRecord> read, ReadSteps(job, steps));
  std::vector<StepRecord> records;
  for (StepRecord& record : read) {
    const std::string directory = StepDirectory(job, record.step);
    if (record.gone && IsListed(directory)) record.unlisted = Hidden(job, record.step, directory);
    if (!record.attempts.empty() || record.unfinished || !record.unlisted.ok()) records.push_back(std::move(record));
  }
  return records;
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

absl::StatusOr<Manifest> CheckpointStore::Read(std::string_view job, const ManifestFile& file) {
  std::string identity;
  CAIRN_ASSIGN_OR_RETURN(Outcome outcome,
                         DecodeSurely(job, file.step, file.attempt, file.path,
                                      storage_.ReadContent(file.path, kMaxOutcomeBytes, Cache::kUse), identity));
  if (auto* manifest = std::get_if<Manifest>(&outcome)) return std::move(*manifest);
  return MakeError(Reason::kNotCommitted, absl::StrCat(file.path, " is no manifest any more"),
                   {{"job", std::string(job)}, {"step", absl::StrCat(file.step)}, {"file", file.path}});
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
  return Read(job, file);
}

}  // namespace cairn

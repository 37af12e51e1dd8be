#include "store/read/attempt_records.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "common/base/crc32c.h"
#include "common/format/checkpoint_path.h"
#include "common/resources/thread.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "store/read/record_index.h"

namespace cairn {
namespace {

// At most this many records are remembered; each takes a few hundred bytes.
constexpr size_t kMaxKnown = 100'000;

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

std::optional<StoredAttempt> AttemptRecords::Known(const std::string& path, const std::string& identity) {
  MutexLock lock(mutex_);
  const auto found = known_.find(path);
  if (found == known_.end() || found->second.identity != identity) return std::nullopt;
  return found->second;
}

void AttemptRecords::Remember(std::string_view job, const std::string& path, const StoredAttempt& record) {
  MutexLock lock(mutex_);
  if (known_.size() >= kMaxKnown) known_.clear();
  known_[path] = record;
  if (const auto indexed = not_indexed_.find(job); indexed != not_indexed_.end()) ++indexed->second;
}

void AttemptRecords::ReadIndex(std::string_view job) {
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

void AttemptRecords::KeepIndex(const std::string& job) {
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

bool AttemptRecords::IsKnown(const std::string& path) {
  MutexLock lock(mutex_);
  return known_.contains(path);
}

const Storage::Entry* AttemptRecords::Listing::Find(std::string_view path) const {
  if (entries_ == nullptr) return nullptr;
  const std::string_view name = path.substr(path.rfind('/') + 1);
  const auto at = std::lower_bound(entries_->begin(), entries_->end(), name,
                                   [](const Storage::Entry& entry, std::string_view of) { return entry.name < of; });
  return at != entries_->end() && at->name == name ? &*at : nullptr;
}

std::string AttemptRecords::Listing::IdentityOf(std::string_view path) const {
  const Storage::Entry* entry = Find(path);
  return entry == nullptr ? "" : entry->identity;
}

absl::StatusOr<Storage::Content> AttemptRecords::LookAt(const std::string& path, const Listing& listing,
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

absl::StatusOr<StoredAttempt> AttemptRecords::ReadRecord(std::string_view job, int64_t step, uint32_t attempt,
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

absl::StatusOr<Storage::Content> AttemptRecords::ReadSurely(
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

absl::StatusOr<Outcome> AttemptRecords::DecodeSurely(std::string_view job, int64_t step, uint32_t attempt,
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

std::optional<StoredAttempt> AttemptRecords::ReadDeletion(std::string_view job, int64_t step, uint32_t attempt,
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

StoredAttempt AttemptRecords::Read(std::string_view job, int64_t step, uint32_t attempt, const Listing& listing) {
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

absl::StatusOr<Manifest> AttemptRecords::ReadManifest(std::string_view job, int64_t step, uint32_t attempt,
                                                      const std::string& path) {
  std::string identity;
  CAIRN_ASSIGN_OR_RETURN(
      Outcome outcome,
      DecodeSurely(job, step, attempt, path, storage_.ReadContent(path, kMaxOutcomeBytes, Cache::kUse), identity));
  if (auto* manifest = std::get_if<Manifest>(&outcome)) return std::move(*manifest);
  return MakeError(Reason::kNotCommitted, absl::StrCat(path, " is no manifest any more"),
                   {{"job", std::string(job)}, {"step", absl::StrCat(step)}, {"file", path}});
}

absl::StatusOr<std::string> AttemptRecords::ReadBytes(const std::string& path) {
  CAIRN_ASSIGN_OR_RETURN(Storage::Content read,
                         ReadSurely(path, storage_.ReadContent(path, kMaxOutcomeBytes, Cache::kUse), CheckOutcome));
  return std::move(read.bytes);
}

}  // namespace cairn

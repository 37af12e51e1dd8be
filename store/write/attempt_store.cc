#include "store/write/attempt_store.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/random_id.h"
#include "common/format/checkpoint_path.h"
#include "common/resources/memory.h"
#include "common/resources/thread.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "store/write/attempt_owner.h"

namespace cairn {
namespace {

constexpr char kReservePath[] = ".cairn/tombstone-room";
constexpr size_t kReserveBytes = 64 << 10;
constexpr size_t kFaultsTold = 4;

absl::Status StepCommitted(const std::string& job, int64_t step, uint32_t attempt) {
  return MakeError(Reason::kStepCommitted, absl::StrCat(job, "@", step, " is committed already"),
                   {{"job", job}, {"step", absl::StrCat(step)}, {"attempt", absl::StrCat(attempt)}});
}

}  // namespace

void AttemptStore::KeepReserve(Storage& storage) {
  // This is best effort: without the reserve, an abort on a full disk has to wait until there is room.
  if (!storage.Exists(kReservePath)) {
    storage.PutReplacing(kReservePath, std::string(kReserveBytes, '\0')).IgnoreError();
  }
}

void AttemptStore::ReleaseReserve(Storage& storage) { storage.RemoveAll(kReservePath).IgnoreError(); }

absl::Status AttemptStore::MayReplace(const std::string& job, const ReserveAttempt& action, uint32_t attempt) {
  // A pin of a step that the training has left behind keeps the files of that step, but the training may commit the
  // step again.
  if (action.left_behind.contains(action.step)) return absl::OkStatus();
  if (!action.overwrite) return StepCommitted(job, action.step, attempt);
  return Annotate(checkpoints_.ReadStep(job, action.step).Protection(job), "not overwritten");
}

absl::StatusOr<Reserved> AttemptStore::Reserve(const std::string& job, const ReserveAttempt& action) {
  const int64_t step = action.step;
  CAIRN_RETURN_IF_ERROR(root_.Check());
  const StepRecord record = checkpoints_.ReadStep(job, step);
  CAIRN_RETURN_IF_ERROR(record.unlisted);
  uint32_t highest = action.above;
  for (const StoredAttempt& found : record.attempts) {
    highest = std::max(highest, found.attempt);
    if (found.damaged && !HasReason(found.error, Reason::kManifestCorrupt)) {
      return Annotate(found.error, absl::StrCat("it is not known how attempt ", found.attempt, " of ", job, "@", step,
                                                " ended, so no new attempt is begun"));
    }
    if (found.stands()) CAIRN_RETURN_IF_ERROR(MayReplace(job, action, found.attempt));
  }
  for (const StoredAttempt& found : record.attempts) {
    if (!found.directory) continue;
    if (found.unfinished) {
      const absl::Status error =
          MakeError(Reason::kCoordinatorRestarted,
                    absl::StrCat(job, "@", step, " attempt ", found.attempt, " was left unfinished"),
                    {{"job", job}, {"step", absl::StrCat(step)}});
      const PutAnswer put = PutAbortRecord(job, step, found.attempt, error, "");
      if (!put.standing.ok()) return put.standing.status();
      if (put.standing->committed) return StepCommitted(job, step, found.attempt);
    }
    // The files of a damaged outcome are kept, because a person may still rescue them, and those of a deleted attempt
    // until no load reads them.
    if (found.unfinished || found.aborted()) CAIRN_RETURN_IF_ERROR(Remove(job, step, found.attempt));
  }
  if (!action.left_behind.empty()) CAIRN_RETURN_IF_ERROR(root_.RaiseFormat());
  KeepReserve(storage_);
  for (uint32_t attempt = highest + 1; attempt <= kMaxAttempt; ++attempt) {
    const uint64_t nonce = RandomId();
    CAIRN_ASSIGN_OR_RETURN(const cairn::Put made,
                           MakeAttemptDirectory(storage_, AttemptDirectory(job, step, attempt), nonce,
                                                absl::StrCat(job, "@", step, " attempt ", attempt)));
    if (made == cairn::Put::kCreated) return Reserved{attempt, nonce};
    // Another coordinator has made the directory since we looked, or the listing lacked it. It may hold a checkpoint.
    const auto outcome = ReadBack(job, step, attempt);
    if (outcome.ok() && outcome->stands()) CAIRN_RETURN_IF_ERROR(MayReplace(job, action, attempt));
    if (!outcome.ok() && !HasReason(outcome.status(), Reason::kFileMissing)) return outcome.status();
  }
  return MakeError(Reason::kUnsupported, absl::StrCat(job, "@", step, " has had ", kMaxAttempt, " attempts"),
                   {{"job", job}, {"step", absl::StrCat(step)}});
}

absl::StatusOr<StoredAttempt> AttemptStore::ReadBack(const std::string& job, int64_t step, uint32_t attempt) {
  StoredAttempt found = checkpoints_.ReadAttempt(job, step, attempt);
  if (found.unfinished) {
    const std::string path = OutcomePath(job, step, attempt);
    return MakeError(Reason::kFileMissing, absl::StrCat(path, " is not there"),
                     {{"job", job}, {"step", absl::StrCat(step)}, {"file", path}});
  }
  if (found.damaged && !HasReason(found.error, Reason::kManifestCorrupt)) return found.error;
  return found;
}

std::optional<StoredAttempt> AttemptStore::Standing(const std::string& job, int64_t step, uint32_t attempt) {
  auto outcome = ReadBack(job, step, attempt);
  if (!outcome.ok() || !storage_.Sync(StepDirectory(job, step)).ok()) return std::nullopt;
  return *std::move(outcome);
}

PutAnswer AttemptStore::WithDoubt(const std::string& path, PutAnswer answer) {
  MutexLock lock(mutex_);
  if (answer.standing.ok()) {
    doubted_.erase(path);
  } else if (answer.in_doubt) {
    doubted_.insert(path);
  } else {
    answer.in_doubt = doubted_.contains(path);
  }
  return answer;
}

PutAnswer AttemptStore::PutRecord(const std::string& job, int64_t step, uint32_t attempt, const std::string& bytes,
                                  bool manifest) {
  const std::string path = OutcomePath(job, step, attempt);
  PutResult result = storage_.TryPutIfAbsent(path, bytes);
  // Somebody has removed the step's directory, with all bins. An abort record may still be put, so the directory is
  // made anew; a manifest may not.
  if (!manifest && HasReason(result.put.status(), Reason::kFileMissing)) {
    if (absl::Status made = storage_.MakeDirectories(StepDirectory(job, step)); !made.ok()) {
      return WithDoubt(path, {std::move(made)});
    }
    result = storage_.TryPutIfAbsent(path, bytes);
  }
  if (!result.put.ok()) return WithDoubt(path, {result.put.status(), result.in_doubt});
  // The record may be our own: over a network, `link` may say "exists" of a name that it has just made itself.
  auto standing = ReadBack(job, step, attempt);
  const bool unread = !standing.ok();
  return WithDoubt(path, {std::move(standing), unread});
}

absl::Status AttemptStore::CheckBins(const std::string& job, const PutOutcome& action) {
  const std::string directory = AttemptDirectory(job, action.step, action.attempt);
  std::vector<std::string> names;
  names.reserve(action.bins->size());
  for (const BinFile& bin : *action.bins) names.push_back(bin.name);
  CAIRN_ASSIGN_OR_RETURN(const auto sizes, storage_.SizesOf(directory, names));
  std::set<int> ranks;
  std::string faults;
  size_t count = 0;
  for (size_t i = 0; i < names.size(); ++i) {
    const BinFile& bin = (*action.bins)[i];
    if (sizes[i] == bin.bytes) continue;
    ranks.insert(bin.rank);
    if (++count > kFaultsTold) continue;
    absl::StrAppend(&faults, count > 1 ? ", " : "", bin.name, " of rank ", bin.rank, " ",
                    sizes[i].has_value() ? absl::StrCat("has ", *sizes[i], " of ", bin.bytes, " bytes") : "is missing");
  }
  if (count == 0) return absl::OkStatus();
  if (count > kFaultsTold) absl::StrAppend(&faults, " and ", count - kFaultsTold, " more");
  return MakeError(
      Reason::kRootMismatch,
      absl::StrCat(job, "@", action.step, " attempt ", action.attempt, ": below the coordinator's root, in ",
                   storage_.root(), "/", directory, ", ", faults,
                   ", though the agents have written and synced every file: coordinator and agents may see "
                   "different storage below their roots"),
      {{"job", job},
       {"step", absl::StrCat(action.step)},
       {"attempt", absl::StrCat(action.attempt)},
       {"ranks", JoinRanks(std::vector<int>(ranks.begin(), ranks.end()))},
       {"root", storage_.root()}});
}

PutAnswer AttemptStore::Put(const std::string& job, const PutOutcome& action) {
  PutAnswer answer;
  const absl::Status enough = WithMemory(absl::StrCat("to end ", job, "@", action.step), [&] {
    answer = PutNow(job, action);
    return absl::OkStatus();
  });
  if (enough.ok()) return answer;
  // Memory may have run out after the record was put, so its existence is in doubt.
  return WithDoubt(OutcomePath(job, action.step, action.attempt), {enough, /*in_doubt=*/true});
}

PutAnswer AttemptStore::PutNow(const std::string& job, const PutOutcome& action) {
  const std::string path = OutcomePath(job, action.step, action.attempt);
  if (action.manifest == nullptr) {
    if (absl::Status held = root_.Check(); !held.ok()) return WithDoubt(path, {std::move(held)});
    return PutAbortRecord(job, action.step, action.attempt, action.error, action.request_id);
  }
  absl::Status held;
  const absl::Status may_commit =
      ForEachOnThreads("to commit", 3, storage_.CallsAtOnce(), [&](size_t check, int) -> absl::Status {
        if (check == 0) return held = root_.Check();
        if (check == 1) {
          return CheckAttemptOwner(storage_, AttemptDirectory(job, action.step, action.attempt), action.nonce);
        }
        return CheckBins(job, action);
      });
  if (!held.ok()) return WithDoubt(path, {std::move(held)});
  if (!may_commit.ok()) {
    // The attempt may have ended already, so that its files are gone.
    if (auto standing = Standing(job, action.step, action.attempt)) return WithDoubt(path, {*std::move(standing)});
    return WithDoubt(path, {may_commit});
  }
  return PutRecord(job, action.step, action.attempt, *action.manifest, /*manifest=*/true);
}

PutAnswer AttemptStore::PutAbortRecord(const std::string& job, int64_t step, uint32_t attempt,
                                       const absl::Status& error, const std::string& request_id) {
  AbortRecord abort_record;
  abort_record.job = job;
  abort_record.step = step;
  abort_record.attempt = attempt;
  abort_record.request_id = request_id;
  abort_record.reason = std::string(InfoOf(ReasonOf(error).value_or(Reason::kInternal)).name);
  abort_record.message = std::string(error.message());
  abort_record.time = clock_.WallNow();
  const std::string bytes = EncodeOutcome(abort_record);
  PutAnswer answer = PutRecord(job, step, attempt, bytes, /*manifest=*/false);
  if (HasReason(answer.standing.status(), Reason::kNoSpace)) {
    ReleaseReserve(storage_);
    answer = PutRecord(job, step, attempt, bytes, /*manifest=*/false);
  }
  return answer;
}

absl::Status AttemptStore::Remove(const std::string& job, int64_t step, uint32_t attempt) {
  CAIRN_ASSIGN_OR_RETURN(const StoredAttempt outcome, ReadBack(job, step, attempt));
  if (outcome.stands()) return StepCommitted(job, step, attempt);
  if (outcome.damaged || outcome.deleted) return outcome.error;
  return storage_.RemoveAll(AttemptDirectory(job, step, attempt));
}

}  // namespace cairn

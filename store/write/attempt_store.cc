#include "store/write/attempt_store.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/random_id.h"
#include "common/resources/memory.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "store/write/attempt_owner.h"
#include "common/format/checkpoint_path.h"

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

void AttemptStore::KeepReserve() {
  // This is best effort: without the reserve, an abort on a full disk has to wait until there is room.
  if (!storage_.Exists(kReservePath)) {
    storage_.PutReplacing(kReservePath, std::string(kReserveBytes, '\0')).IgnoreError();
  }
}

void AttemptStore::ReleaseReserve(PosixStorage& storage) { storage.RemoveAll(kReservePath).IgnoreError(); }

absl::Status AttemptStore::MayReplace(const std::string& job, const ReserveAttempt& action, uint32_t attempt) {
  // A pin of what the training has left behind keeps its files. It does not keep the training from going on.
  if (action.left_behind.contains(action.step)) return absl::OkStatus();
  if (!action.overwrite) return StepCommitted(job, action.step, attempt);
  return Annotate(catalog_.ReadStep(job, action.step).Protection(job), "not overwritten");
}

absl::StatusOr<Reserved> AttemptStore::Reserve(const std::string& job, const ReserveAttempt& action) {
  const int64_t step = action.step;
  CAIRN_RETURN_IF_ERROR(root_.held());
  CAIRN_ASSIGN_OR_RETURN(const Catalog::Step listed, catalog_.ListStep(job, step));
  uint32_t highest = action.above;
  std::set<uint32_t> kept;
  for (uint32_t attempt : listed.verdict) {
    highest = std::max(highest, attempt);
    const auto verdict = ReadBack(job, step, attempt);
    if (!verdict.ok()) {
      return Annotate(verdict.status(), absl::StrCat("nobody knows how attempt ", attempt, " of ", job, "@", step,
                                                     " ended, so no other one is begun"));
    }
    if (verdict->stands()) CAIRN_RETURN_IF_ERROR(MayReplace(job, action, attempt));
    if (verdict->stands() || verdict->damaged || verdict->deleted) kept.insert(attempt);
  }
  for (uint32_t attempt : listed.directory) {
    highest = std::max(highest, attempt);
    if (std::find(listed.verdict.begin(), listed.verdict.end(), attempt) == listed.verdict.end()) {
      const absl::Status error = MakeError(Reason::kCoordinatorRestarted,
                                           absl::StrCat(job, "@", step, " attempt ", attempt, " was left unfinished"),
                                           {{"job", job}, {"step", absl::StrCat(step)}});
      const PutOutcome put = PutTombstone(job, step, attempt, error, "");
      if (!put.standing.ok()) return put.standing.status();
      if (put.standing->committed) return StepCommitted(job, step, attempt);
    }
    // The files of a damaged verdict are kept, because a person may still rescue them, and those of a deleted attempt
    // until no load reads them.
    if (!kept.contains(attempt)) CAIRN_RETURN_IF_ERROR(Remove(job, step, attempt));
  }
  if (!action.left_behind.empty()) CAIRN_RETURN_IF_ERROR(root_.raise_format());
  KeepReserve();
  for (uint32_t attempt = highest + 1; attempt <= kMaxAttempt; ++attempt) {
    const uint64_t nonce = RandomId();
    CAIRN_ASSIGN_OR_RETURN(const PosixStorage::Put made,
                           MakeAttemptDirectory(storage_, AttemptDirectory(job, step, attempt), nonce,
                                                absl::StrCat(job, "@", step, " attempt ", attempt)));
    if (made == PosixStorage::Put::kCreated) return Reserved{attempt, nonce};
    // Another coordinator has made it since we looked, or the list did not tell of it. It may be a checkpoint.
    const auto verdict = ReadBack(job, step, attempt);
    if (verdict.ok() && verdict->stands()) CAIRN_RETURN_IF_ERROR(MayReplace(job, action, attempt));
    if (!verdict.ok() && !HasReason(verdict.status(), Reason::kFileMissing)) return verdict.status();
  }
  return MakeError(Reason::kUnsupported, absl::StrCat(job, "@", step, " has had ", kMaxAttempt, " attempts"),
                   {{"job", job}, {"step", absl::StrCat(step)}});
}

absl::StatusOr<VerdictSummary> AttemptStore::ReadBack(const std::string& job, int64_t step, uint32_t attempt) {
  auto verdict = catalog_.Read(job, step, attempt);
  if (!HasReason(verdict.status(), Reason::kManifestCorrupt)) return verdict;
  VerdictSummary summary;
  summary.step = step;
  summary.attempt = attempt;
  summary.damaged = true;
  summary.error = verdict.status();
  return summary;
}

std::optional<VerdictSummary> AttemptStore::Standing(const std::string& job, int64_t step, uint32_t attempt) {
  auto verdict = ReadBack(job, step, attempt);
  if (!verdict.ok() || !storage_.SettleDirectory(StepDirectory(job, step)).ok()) return std::nullopt;
  return *std::move(verdict);
}

PutOutcome AttemptStore::WithDoubt(const std::string& path, PutOutcome outcome) {
  MutexLock lock(mutex_);
  if (outcome.standing.ok()) {
    doubted_.erase(path);
  } else if (outcome.in_doubt) {
    doubted_.insert(path);
  } else {
    outcome.in_doubt = doubted_.contains(path);
  }
  return outcome;
}

PutOutcome AttemptStore::PutRecord(const std::string& job, int64_t step, uint32_t attempt, const std::string& bytes,
                                   bool manifest) {
  const std::string path = VerdictPath(job, step, attempt);
  PosixStorage::PutResult result = storage_.TryPutIfAbsent(path, bytes);
  // Somebody has deleted the step, and the bins of a commit with it. So only a tombstone makes the directory anew.
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

absl::Status AttemptStore::CheckComplete(const std::string& job, const PutVerdict& action) {
  const std::string directory = AttemptDirectory(job, action.step, action.attempt);
  CAIRN_RETURN_IF_ERROR(CheckAttemptOwner(storage_, directory, action.nonce));
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

PutOutcome AttemptStore::Put(const std::string& job, const PutVerdict& action) {
  PutOutcome outcome;
  const absl::Status enough = WithMemory(absl::StrCat("to end ", job, "@", action.step), [&] {
    outcome = PutNow(job, action);
    return absl::OkStatus();
  });
  if (enough.ok()) return outcome;
  // The memory may have run out after the record had its name.
  return WithDoubt(VerdictPath(job, action.step, action.attempt), {enough, /*in_doubt=*/true});
}

PutOutcome AttemptStore::PutNow(const std::string& job, const PutVerdict& action) {
  const std::string path = VerdictPath(job, action.step, action.attempt);
  if (absl::Status held = root_.held(); !held.ok()) return WithDoubt(path, {std::move(held)});
  if (action.manifest == nullptr) {
    return PutTombstone(job, action.step, action.attempt, action.error, action.request_id);
  }
  if (absl::Status complete = CheckComplete(job, action); !complete.ok()) {
    // Perhaps because the attempt has ended already, and its files are gone.
    if (auto standing = Standing(job, action.step, action.attempt)) return WithDoubt(path, {*std::move(standing)});
    return WithDoubt(path, {std::move(complete)});
  }
  return PutRecord(job, action.step, action.attempt, *action.manifest, /*manifest=*/true);
}

PutOutcome AttemptStore::PutTombstone(const std::string& job, int64_t step, uint32_t attempt, const absl::Status& error,
                                      const std::string& request_id) {
  Tombstone tombstone;
  tombstone.job = job;
  tombstone.step = step;
  tombstone.attempt = attempt;
  tombstone.request_id = request_id;
  tombstone.reason = std::string(InfoOf(ReasonOf(error).value_or(Reason::kInternal)).name);
  tombstone.message = std::string(error.message());
  tombstone.time = clock_.WallNow();
  const std::string bytes = EncodeVerdict(tombstone);
  PutOutcome outcome = PutRecord(job, step, attempt, bytes, /*manifest=*/false);
  if (HasReason(outcome.standing.status(), Reason::kNoSpace)) {
    ReleaseReserve(storage_);
    outcome = PutRecord(job, step, attempt, bytes, /*manifest=*/false);
  }
  return outcome;
}

absl::Status AttemptStore::Remove(const std::string& job, int64_t step, uint32_t attempt) {
  CAIRN_ASSIGN_OR_RETURN(const VerdictSummary verdict, ReadBack(job, step, attempt));
  if (verdict.stands()) return StepCommitted(job, step, attempt);
  if (verdict.damaged || verdict.deleted) return verdict.error;
  return storage_.RemoveAll(AttemptDirectory(job, step, attempt));
}

}  // namespace cairn

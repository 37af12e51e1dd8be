#include "coordinator/server/attempt_store.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/random_id.h"
#include "common/base/status.h"
#include "common/rpc/reason.h"
#include "common/storage/checkpoint_path.h"

namespace cairn {
namespace {

constexpr char kReservePath[] = ".cairn/tombstone-room";
constexpr size_t kReserveBytes = 64 << 10;

absl::Status StepCommitted(const std::string& job, int64_t step, uint32_t attempt) {
  return MakeError(Reason::kStepCommitted, absl::StrCat(job, "@", step, " is committed already"),
                   {{"job", job}, {"step", absl::StrCat(step)}, {"attempt", absl::StrCat(attempt)}});
}

}  // namespace

void AttemptStore::KeepReserve() {
  // Best effort: without it an abort on a full disk has to wait until room was made.
  if (!storage_.Exists(kReservePath)) {
    storage_.PutReplacing(kReservePath, std::string(kReserveBytes, '\0')).IgnoreError();
  }
}

void AttemptStore::ReleaseReserve() { storage_.RemoveAll(kReservePath).IgnoreError(); }

absl::StatusOr<Reserved> AttemptStore::Reserve(const std::string& job, int64_t step, uint32_t above) {
  CAIRN_ASSIGN_OR_RETURN(const Catalog::Step listed, catalog_.ListStep(job, step));
  uint32_t highest = above;
  for (uint32_t attempt : listed.verdict) {
    highest = std::max(highest, attempt);
    const auto verdict = catalog_.Read(job, step, attempt);
    if (verdict.ok() && verdict->committed) return StepCommitted(job, step, attempt);
    if (!verdict.ok() && !HasReason(verdict.status(), Reason::kManifestCorrupt)) return verdict.status();
  }
  for (uint32_t attempt : listed.directory) {
    highest = std::max(highest, attempt);
    const bool has_verdict = std::find(listed.verdict.begin(), listed.verdict.end(), attempt) != listed.verdict.end();
    if (!has_verdict) {
      const absl::Status error = MakeError(Reason::kCoordinatorRestarted,
                                           absl::StrCat(job, "@", step, " attempt ", attempt, " was left unfinished"),
                                           {{"job", job}, {"step", absl::StrCat(step)}});
      const PutOutcome put = PutTombstone(job, step, attempt, error, "");
      if (!put.standing.ok()) return put.standing.status();
      if (put.standing->committed) return StepCommitted(job, step, attempt);
    } else {
      const auto verdict = catalog_.Read(job, step, attempt);
      // What a damaged verdict belongs to may still be rescued by hand.
      if (!verdict.ok()) continue;
    }
    CAIRN_RETURN_IF_ERROR(Remove(job, step, attempt));
  }
  if (highest >= kMaxAttempt) {
    return MakeError(Reason::kUnsupported, absl::StrCat(job, "@", step, " has had ", highest, " attempts"),
                     {{"job", job}, {"step", absl::StrCat(step)}});
  }
  KeepReserve();
  CAIRN_RETURN_IF_ERROR(storage_.MakeDirectories(AttemptDirectory(job, step, highest + 1)));
  return Reserved{highest + 1, RandomId()};
}

PutOutcome AttemptStore::PutRecord(const std::string& job, int64_t step, uint32_t attempt, const std::string& bytes) {
  if (absl::Status made = storage_.MakeDirectories(StepDirectory(job, step)); !made.ok()) return {std::move(made)};
  const auto put = storage_.PutIfAbsent(VerdictPath(job, step, attempt), bytes);
  if (!put.ok()) {
    // It may stand there all the same: the error may be that of a later fsync, or of its answer alone.
    auto standing = catalog_.Read(job, step, attempt);
    if (!standing.ok()) return {put.status(), /*in_doubt=*/false};
    if (absl::Status synced = storage_.SyncDirectory(StepDirectory(job, step)); !synced.ok()) return {synced, true};
    return {std::move(standing)};
  }
  return {catalog_.Read(job, step, attempt)};
}

PutOutcome AttemptStore::Put(const std::string& job, const PutVerdict& action) {
  if (action.manifest == nullptr) {
    return PutTombstone(job, action.step, action.attempt, action.error, action.request_id);
  }
  return PutRecord(job, action.step, action.attempt, *action.manifest);
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
  PutOutcome outcome = PutRecord(job, step, attempt, bytes);
  if (HasReason(outcome.standing.status(), Reason::kNoSpace)) {
    ReleaseReserve();
    outcome = PutRecord(job, step, attempt, bytes);
  }
  return outcome;
}

absl::Status AttemptStore::Remove(const std::string& job, int64_t step, uint32_t attempt) {
  return storage_.RemoveAll(AttemptDirectory(job, step, attempt));
}

}  // namespace cairn

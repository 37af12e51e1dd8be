#include "store/repair/repair.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/format/checkpoint_path.h"
#include "common/format/outcome.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "store/read/checkpoint_store.h"
#include "store/repair/bin_headers.h"
#include "store/repair/rebuild.h"
#include "store/storage/root_lock.h"

namespace cairn {
namespace {

absl::Status CheckCommit(Storage& storage, const std::string& job, int64_t step, const StoredAttempt& damaged,
                         bool assume_committed) {
  // A newer version may have written this outcome, which this version must not overrule.
  if (HasReason(damaged.error, Reason::kFormatTooNew)) return damaged.error;
  const std::string path = OutcomePath(job, step, damaged.attempt);
  const auto bytes = storage.Read(path, kMaxOutcomeBytes);
  if (assume_committed || (bytes.ok() && ShowsManifestOf(*bytes, job, step, damaged.attempt))) return absl::OkStatus();
  return MakeError(
      Reason::kCommitUnproven,
      absl::StrCat(job, "@", step, ": what is left of ", storage.root(), "/", path,
                   " does not show that it was a commit (", damaged.error.message(), ")"),
      {{"job", job}, {"step", absl::StrCat(step)}, {"attempt", absl::StrCat(damaged.attempt)}, {"file", path}});
}

absl::Status Verified(const RepairOptions& options, const std::string& job, int64_t step, const VerifyReport& report) {
  if (options.verify.interrupted && options.verify.interrupted()) {
    return MakeError(Reason::kInterrupted, "interrupted");
  }
  if (report.faults.empty()) return absl::OkStatus();
  const VerifyFault& first = report.faults.front();
  return MakeError(first.reason,
                   absl::StrCat(job, "@", step, " cannot be repaired: its files have ", report.faults_in_all,
                                report.faults_in_all == 1 ? " fault: " : " faults; the first: ", first.message),
                   {{"job", job},
                    {"step", absl::StrCat(step)},
                    {"file", first.file},
                    {"tensor", first.tensor},
                    {"faults", absl::StrCat(report.faults_in_all)}});
}

// The files do not say to which line of the job the step belongs. The other steps do, if the training builds on this
// one.
absl::Status RecoverLineage(CheckpointStore& store, RepairReport& report) {
  CAIRN_ASSIGN_OR_RETURN(std::vector<StepRecord> steps, store.ReadJob(report.manifest.job));
  std::erase_if(steps, [&](const StepRecord& each) { return each.step == report.manifest.step; });
  const JobLineage lineage = LineageOf(steps);
  if (const std::optional<Lineage> found = lineage.Recover(report.manifest.step)) {
    report.manifest.lineage = *found;
  } else if (lineage.latest().has_value()) {
    report.unknown.push_back("whether a training has gone back behind this step; it counts as superseded");
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status RepairCheckpoint(Storage& storage, const std::string& job, int64_t step, const RepairOptions& options,
                              RepairReport& report) {
  CAIRN_RETURN_IF_ERROR(CheckJobName(job));
  CAIRN_RETURN_IF_ERROR(CheckStep(step));
  CheckpointStore store(storage);
  StepRecord record = store.ReadStep(job, step);
  CAIRN_RETURN_IF_ERROR(record.unlisted);
  if (record.state() == StepRecord::State::kNothing) CAIRN_RETURN_IF_ERROR(store.ReadManifest(job, step).status());
  const bool readable = record.state() == StepRecord::State::kCommitted;
  if (readable) {
    // The manifest can be read, and no repair can mend files. So the files are only read, which needs no lock.
    CAIRN_ASSIGN_OR_RETURN(report.manifest, store.ReadManifest(job, step));
    report.verified = VerifyCheckpoint(storage, report.manifest, options.verify);
    CAIRN_RETURN_IF_ERROR(Verified(options, job, step, report.verified));
    if (!record.deciding()->repaired) return absl::OkStatus();
  }
  CAIRN_ASSIGN_OR_RETURN(const auto lock, storage.TakeRoot());
  // An earlier repair that was killed may have left a file.
  storage.RemoveUnfinished({StepDirectory(job, step)}, lock->began()).IgnoreError();
  record = store.ReadStep(job, step);
  if (record.state() == StepRecord::State::kCommitted) {
    // An earlier repair may have ended before its fsync, or its fsync may have failed.
    CAIRN_RETURN_IF_ERROR(storage.Sync(StepDirectory(job, step)));
    if (readable) return absl::OkStatus();
    CAIRN_ASSIGN_OR_RETURN(report.manifest, store.ReadManifest(job, step));
    report.verified = VerifyCheckpoint(storage, report.manifest, options.verify);
    return Verified(options, job, step, report.verified);
  }
  const StoredAttempt* damaged = record.deciding();
  if (damaged == nullptr) return store.ReadManifest(job, step).status();
  const uint32_t attempt = damaged->attempt;
  CAIRN_RETURN_IF_ERROR(CheckCommit(storage, job, step, *damaged, options.assume_committed));
  CAIRN_ASSIGN_OR_RETURN(const BinHeaders headers, ReadBinHeaders(storage, job, step, attempt));
  CAIRN_ASSIGN_OR_RETURN(RebuiltManifest rebuilt, RebuildManifest(headers, job, step, attempt));
  report.manifest = std::move(rebuilt.manifest);
  report.unknown = std::move(rebuilt.unknown);
  CAIRN_RETURN_IF_ERROR(RecoverLineage(store, report));
  // The record is decoded and compared before it is put, so that no reader gets another one than was meant.
  const std::string bytes = EncodeOutcome(report.manifest);
  CAIRN_ASSIGN_OR_RETURN(const Outcome decoded, DecodeOutcome(bytes));
  if (std::get<Manifest>(decoded) != report.manifest) {
    return MakeError(Reason::kInternal,
                     absl::StrCat(job, "@", step, ": the rebuilt manifest does not read as written"));
  }
  report.verified = VerifyCheckpoint(storage, report.manifest, options.verify);
  CAIRN_RETURN_IF_ERROR(Verified(options, job, step, report.verified));
  const std::string path = RepairedPath(job, step, attempt);
  CAIRN_ASSIGN_OR_RETURN(const Put put, storage.PutIfAbsent(path, bytes));
  if (put == Put::kExists) {
    return MakeError(
        Reason::kManifestCorrupt,
        absl::StrCat(storage.FullPath(path), " exists already and cannot be read: move it away, then repair again"),
        {{"job", job}, {"step", absl::StrCat(step)}, {"file", path}});
  }
  report.repaired = true;
  return store.ReadStep(job, step).damage();
}

}  // namespace cairn

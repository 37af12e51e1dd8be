// The part of CheckpointStore that serves decisions: it makes outcomes durable before it returns them, keeps the
// manifest that was used last, and chooses the step that a load takes.

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/format/checkpoint_path.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "store/read/check_files.h"
#include "store/read/checkpoint_store.h"

namespace cairn {
namespace {

// A step that cannot be listed counts as a damaged attempt 0.
void AddTo(StoredAttempts& attempts, const StepRecord& step) {
  if (!step.unlisted.ok()) attempts.push_back({.step = step.step, .damaged = true, .error = step.unlisted});
  attempts.insert(attempts.end(), step.attempts.begin(), step.attempts.end());
}

// A load passes over at most this many steps: if more in a row are damaged, the fault lies in the storage.
constexpr size_t kMaxPassedOver = 64;

}  // namespace

std::vector<StepRecord> CheckpointStore::Settled(const std::string& job, std::vector<StepRecord> steps) {
  std::vector<std::string> directories;
  std::vector<StepRecord*> told;
  for (StepRecord& step : steps) {
    const bool outcome = std::any_of(step.attempts.begin(), step.attempts.end(),
                                     [](const StoredAttempt& record) { return !record.unfinished && !record.damaged; });
    if (!outcome) continue;
    directories.push_back(StepDirectory(job, step.step));
    told.push_back(&step);
  }
  const std::vector<absl::Status> settled = storage_.Sync(directories);
  for (size_t i = 0; i < told.size(); ++i) {
    if (settled[i].ok()) continue;
    for (StoredAttempt& record : told[i]->attempts) {
      if (record.unfinished) continue;
      const bool directory = record.directory;
      record = {.step = record.step, .attempt = record.attempt, .damaged = true, .directory = directory};
      record.error = settled[i];
    }
  }
  return steps;
}

absl::StatusOr<StoredAttempts> CheckpointStore::RecoverStep(const std::string& job, int64_t step) {
  CAIRN_RETURN_IF_ERROR(CheckJobName(job));
  StoredAttempts recovered;
  AddTo(recovered, Settled(job, {ReadStep(job, step)}).front());
  return recovered;
}

void CheckpointStore::RemoveUnfinished(const std::string& job, const std::vector<StepRecord>& steps) {
  std::vector<std::string> directories;
  for (const StepRecord& step : steps) {
    if (step.unfinished) directories.push_back(StepDirectory(job, step.step));
    for (const StoredAttempt& attempt : step.attempts) {
      // The directory of an aborted attempt is removed as a whole. To list the directory of a commit takes about as
      // long as to read its manifest, which was done just now.
      if (!attempt.stands() || !attempt.directory) continue;
      directories.push_back(AttemptDirectory(job, step.step, attempt.attempt));
    }
  }
  // Directories of which a name was made durable: the job's, and those above it.
  for (std::string directory = job; !directory.empty();) {
    directories.push_back(directory);
    const size_t cut = directory.rfind('/');
    directory.resize(cut == std::string::npos ? 0 : cut);
  }
  storage_.RemoveUnfinished(directories, began_).IgnoreError();
}

absl::StatusOr<StoredAttempts> CheckpointStore::Recover(const std::string& job) {
  CAIRN_ASSIGN_OR_RETURN(std::vector<StepRecord> steps, ReadJob(job));
  RemoveUnfinished(job, steps);
  StoredAttempts recovered;
  for (const StepRecord& step : Settled(job, std::move(steps))) AddTo(recovered, step);
  return recovered;
}

absl::StatusOr<CheckpointStore::ManifestBytes> CheckpointStore::ReadManifestBytes(const std::string& job,
                                                                                  std::optional<int64_t> step) {
  CAIRN_ASSIGN_OR_RETURN(const ManifestFile file, Find(job, step));
  {
    MutexLock lock(mutex_);
    if (bytes_ != nullptr && bytes_file_ == file) return ManifestBytes{file.step, file.attempt, bytes_};
  }
  CAIRN_ASSIGN_OR_RETURN(std::string read, records_.ReadBytes(file.path));
  auto bytes = std::make_shared<const std::string>(std::move(read));
  MutexLock lock(mutex_);
  bytes_file_ = file;
  bytes_ = bytes;
  return ManifestBytes{file.step, file.attempt, std::move(bytes)};
}

absl::StatusOr<CheckpointStore::ManifestPtr> CheckpointStore::Share(const std::string& job, const ManifestFile& file) {
  {
    MutexLock lock(mutex_);
    if (manifest_ != nullptr && manifest_file_ == file) return manifest_;
  }
  CAIRN_ASSIGN_OR_RETURN(Manifest read, records_.ReadManifest(job, file.step, file.attempt, file.path));
  auto manifest = std::make_shared<const Manifest>(std::move(read));
  MutexLock lock(mutex_);
  manifest_file_ = file;
  manifest_ = manifest;
  return manifest;
}

absl::StatusOr<CheckpointStore::ManifestPtr> CheckpointStore::SharedManifest(const std::string& job,
                                                                             std::optional<int64_t> step) {
  CAIRN_ASSIGN_OR_RETURN(const ManifestFile file, Find(job, step));
  return Share(job, file);
}

absl::StatusOr<CheckpointStore::ManifestPtr> CheckpointStore::ReadNewestReadable(const std::string& job,
                                                                                 const std::string& known,
                                                                                 const std::set<int64_t>& except) {
  CAIRN_ASSIGN_OR_RETURN(const std::vector<int64_t> steps, Steps(job));
  for (size_t i = steps.size(); i-- > 0;) {
    if (except.contains(steps[i])) continue;
    const StepRecord step = ReadStep(job, steps[i]);
    if (step.state() != StepRecord::State::kCommitted) continue;
    if (!known.empty() && step.deciding()->plan_digest == known) return ManifestPtr();
    if (auto manifest = Share(job, ManifestFileOf(job, step)); manifest.ok()) return manifest;
  }
  return ManifestPtr();
}

absl::StatusOr<CheckpointStore::ManifestPtr> CheckpointStore::ReadValid(const std::string& job,
                                                                        const StepRecord& step) {
  CAIRN_RETURN_IF_ERROR(step.damage());
  if (step.state() != StepRecord::State::kCommitted) return NotCommitted(job, step.step, std::nullopt);
  CAIRN_ASSIGN_OR_RETURN(ManifestPtr manifest, Share(job, ManifestFileOf(job, step)));
  CAIRN_RETURN_IF_ERROR(CheckFilesOf(storage_, *manifest));
  return manifest;
}

absl::StatusOr<std::vector<StepRecord>> CheckpointStore::ReadCurrent(const std::string& job) {
  CAIRN_ASSIGN_OR_RETURN(std::vector<StepRecord> steps, ReadCheckpoints(job));
  const JobLineage lineage = LineageOf(steps);
  std::erase_if(steps, [&](const StepRecord& step) { return lineage.superseded().contains(step.step); });
  return steps;
}

std::optional<std::vector<int64_t>> CheckpointStore::CurrentOf(const std::string& job, const KnownSteps& known) {
  const auto steps = Steps(job);
  if (!steps.ok()) return std::nullopt;
  for (const int64_t step : *steps) {
    if (std::binary_search(known.all.begin(), known.all.end(), step)) continue;
    // The step is being saved, or somebody else has put it there. A new commit may change which steps are superseded.
    const StepRecord::State state = ReadStep(job, step).state();
    if (state != StepRecord::State::kNothing) return std::nullopt;
  }
  return known.current;
}

absl::StatusOr<CheckpointStore::ValidCheckpoint> CheckpointStore::FindValid(const std::string& job, bool fallback,
                                                                            const KnownSteps* known,
                                                                            const std::set<int64_t>& except) {
  if (auto current = known == nullptr ? std::nullopt : CurrentOf(job, *known); current.has_value()) {
    std::erase_if(*current, [&](int64_t step) { return except.contains(step); });
    const auto found = FindValidIn(job, *current, fallback, [&](int64_t step) { return ReadStep(job, step); });
    if (found.ok()) return found;
  }
  CAIRN_ASSIGN_OR_RETURN(const std::vector<StepRecord> records, ReadCurrent(job));
  std::vector<int64_t> steps;
  for (const StepRecord& record : records) {
    if (!except.contains(record.step)) steps.push_back(record.step);
  }
  return FindValidIn(job, steps, fallback, [&](int64_t step) {
    return *std::find_if(records.begin(), records.end(), [&](const StepRecord& record) { return record.step == step; });
  });
}

absl::StatusOr<CheckpointStore::ValidCheckpoint> CheckpointStore::FindValidIn(const std::string& job,
                                                                              const std::vector<int64_t>& current,
                                                                              bool fallback, const StepReader& read) {
  ValidCheckpoint found;
  for (size_t i = current.size(); i-- > 0;) {
    const StepRecord step = read(current[i]);
    auto manifest = ReadValid(job, step);
    if (manifest.ok()) {
      found.manifest = *std::move(manifest);
      return found;
    }
    const absl::Status error = Annotate(manifest.status(), absl::StrCat(job, "@", step.step),
                                        {{"job", job}, {"step", absl::StrCat(step.step)}});
    if (!fallback || !IsProvenDamage(error)) return error;
    found.passed_over.emplace_back(step.step, error);
    if (found.passed_over.size() == kMaxPassedOver) break;
  }
  if (found.passed_over.empty()) return NotCommitted(job, std::nullopt, std::nullopt);
  return found.passed_over.size() == 1
             ? found.passed_over.front().second
             : Annotate(found.passed_over.front().second,
                        absl::StrCat("the newest ", found.passed_over.size(), " checkpoints of ", job,
                                     " are damaged; the first of them"));
}

std::optional<int64_t> CheckpointStore::NewestValidOf(const std::string& job,
                                                      absl::FunctionRef<bool(int64_t step)> wanted) {
  const auto steps = ReadCurrent(job);
  if (!steps.ok()) return std::nullopt;
  size_t passed_over = 0;
  for (size_t i = steps->size(); i-- > 0 && passed_over < kMaxPassedOver;) {
    const StepRecord& step = (*steps)[i];
    if (!wanted(step.step)) continue;
    if (ReadValid(job, step).ok()) return step.step;
    ++passed_over;
  }
  return std::nullopt;
}

std::optional<int64_t> CheckpointStore::NewestValid(const std::string& job, std::optional<int64_t> except) {
  return NewestValidOf(job, [&](int64_t step) { return step != except; });
}

std::optional<int64_t> CheckpointStore::ValidBelow(const std::string& job, int64_t below) {
  return NewestValidOf(job, [&](int64_t step) { return step < below; });
}

std::optional<int64_t> CheckpointStore::CommittedBelow(const std::string& job, int64_t step) {
  const auto steps = ReadCurrent(job);
  if (!steps.ok()) return std::nullopt;
  for (size_t i = steps->size(); i-- > 0;) {
    const StepRecord& older = (*steps)[i];
    if (older.step < step && older.state() == StepRecord::State::kCommitted) return older.step;
  }
  return std::nullopt;
}

}  // namespace cairn

#include "coordinator/server/catalog.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "common/rpc/reason.h"
#include "common/storage/checkpoint_path.h"

namespace cairn {
namespace {

constexpr uint64_t kMaxVerdictBytes = uint64_t{1} << 30;

VerdictSummary Summarize(int64_t step, uint32_t attempt, const Verdict& verdict) {
  VerdictSummary summary;
  summary.step = step;
  summary.attempt = attempt;
  if (const Manifest* manifest = std::get_if<Manifest>(&verdict); manifest != nullptr) {
    summary.committed = true;
    summary.request_id = manifest->request_id;
    summary.bytes = manifest->total_bytes();
    summary.world_size = manifest->world_size;
    summary.commit_time = manifest->commit_time;
    return summary;
  }
  const Tombstone& tombstone = std::get<Tombstone>(verdict);
  summary.request_id = tombstone.request_id;
  summary.commit_time = tombstone.time;
  summary.error = MakeError(ReasonFromName(tombstone.reason).value_or(Reason::kInternal), tombstone.message,
                            {{"job", tombstone.job}, {"step", absl::StrCat(step)}, {"attempt", absl::StrCat(attempt)}});
  return summary;
}

// A damaged verdict ends its attempt like a tombstone: nothing of it may be loaded, nothing is written over it.
VerdictSummary Damaged(int64_t step, uint32_t attempt, const absl::Status& error) {
  VerdictSummary summary;
  summary.damaged = true;
  summary.step = step;
  summary.attempt = attempt;
  summary.error = error;
  return summary;
}

}  // namespace

absl::StatusOr<std::vector<int64_t>> Catalog::Steps(const std::string& job) {
  const auto entries = storage_.List(job);
  if (HasReason(entries.status(), Reason::kFileMissing)) return std::vector<int64_t>();
  if (!entries.ok()) return entries.status();
  std::vector<int64_t> steps;
  for (const PosixStorage::Entry& entry : *entries) {
    if (const auto step = ParseStepName(entry.name); step.has_value() && entry.directory) steps.push_back(*step);
  }
  return steps;  // names sort as numbers do
}

absl::StatusOr<Catalog::Step> Catalog::ListStep(const std::string& job, int64_t step) {
  Step found{step, {}, {}};
  const auto entries = storage_.List(StepDirectory(job, step));
  if (HasReason(entries.status(), Reason::kFileMissing)) return found;
  if (!entries.ok()) return entries.status();
  for (const PosixStorage::Entry& entry : *entries) {
    if (const auto attempt = ParseVerdictName(entry.name); attempt.has_value() && !entry.directory) {
      found.verdict.push_back(*attempt);
    } else if (const auto number = ParseAttemptName(entry.name); number.has_value() && entry.directory) {
      found.directory.push_back(*number);
    }
  }
  return found;
}

absl::StatusOr<std::string> Catalog::ReadBytes(const std::string& job, int64_t step, uint32_t attempt) {
  return storage_.ReadFile(VerdictPath(job, step, attempt), kMaxVerdictBytes);
}

absl::StatusOr<VerdictSummary> Catalog::Read(const std::string& job, int64_t step, uint32_t attempt) {
  const std::string path = VerdictPath(job, step, attempt);
  CAIRN_ASSIGN_OR_RETURN(const UniqueFd fd, storage_.OpenFile(path, O_RDONLY));
  struct stat info = {};
  const bool known = fstat(fd.get(), &info) == 0;
  const int64_t modified = info.st_mtim.tv_sec * 1'000'000'000 + info.st_mtim.tv_nsec;
  if (known) {
    MutexLock lock(mutex_);
    const auto found = cache_.find(path);
    if (found != cache_.end() && found->second.size == static_cast<uint64_t>(info.st_size) &&
        found->second.modified == modified) {
      return found->second.summary;
    }
  }
  CAIRN_ASSIGN_OR_RETURN(const std::string bytes, ReadBytes(job, step, attempt));
  const absl::StatusOr<Verdict> verdict = DecodeVerdict(bytes);
  if (!verdict.ok()) return Annotate(verdict.status(), path, {{"file", path}});
  VerdictSummary summary = Summarize(step, attempt, *verdict);
  constexpr size_t kMaxCached = 100'000;
  MutexLock lock(mutex_);
  if (cache_.size() >= kMaxCached) cache_.clear();
  cache_[path] = {static_cast<uint64_t>(info.st_size), modified, summary};
  return summary;
}

absl::StatusOr<Recovered> Catalog::RecoverStep(const std::string& job, int64_t step) {
  CAIRN_ASSIGN_OR_RETURN(const Step listed, ListStep(job, step));
  Recovered recovered;
  // What is told of the step is durable: its maker may have ended before its own fsync.
  absl::Status settled;
  if (!listed.verdict.empty()) settled = storage_.SettleDirectory(StepDirectory(job, step));
  for (uint32_t attempt : listed.verdict) {
    const auto verdict = settled.ok() ? Read(job, step, attempt) : settled;
    if (!settled.ok()) {
      recovered.verdict.push_back(Damaged(step, attempt, settled));
    } else if (verdict.ok()) {
      recovered.verdict.push_back(*verdict);
    } else if (HasReason(verdict.status(), Reason::kManifestCorrupt) ||
               HasReason(verdict.status(), Reason::kFormatTooNew)) {
      recovered.verdict.push_back(Damaged(step, attempt, verdict.status()));
    } else if (!HasReason(verdict.status(), Reason::kFileMissing)) {
      return verdict.status();
    }
  }
  for (uint32_t attempt : listed.directory) {
    const auto verdict = std::find_if(recovered.verdict.begin(), recovered.verdict.end(),
                                      [&](const VerdictSummary& each) { return each.attempt == attempt; });
    if (verdict == recovered.verdict.end()) {
      recovered.leftover.push_back({step, attempt, /*tombstone=*/false});
    } else if (!verdict->committed && !verdict->damaged) {
      recovered.leftover.push_back({step, attempt, /*tombstone=*/true});
    }
  }
  return recovered;
}

absl::StatusOr<Recovered> Catalog::Recover(const std::string& job) {
  CAIRN_ASSIGN_OR_RETURN(const std::vector<int64_t> steps, Steps(job));
  Recovered recovered;
  for (int64_t step : steps) {
    CAIRN_ASSIGN_OR_RETURN(Recovered one, RecoverStep(job, step));
    recovered.verdict.insert(recovered.verdict.end(), one.verdict.begin(), one.verdict.end());
    recovered.leftover.insert(recovered.leftover.end(), one.leftover.begin(), one.leftover.end());
  }
  return recovered;
}

absl::StatusOr<std::vector<VerdictSummary>> Catalog::Committed(const std::string& job) {
  CAIRN_ASSIGN_OR_RETURN(const Recovered recovered, Recover(job));
  std::vector<VerdictSummary> committed;
  for (const VerdictSummary& verdict : recovered.verdict) {
    if (verdict.committed) committed.push_back(verdict);
  }
  return committed;
}

absl::StatusOr<Catalog::ManifestBytes> Catalog::ReadManifestBytes(const std::string& job, std::optional<int64_t> step) {
  std::vector<int64_t> steps;
  if (step.has_value()) {
    CAIRN_RETURN_IF_ERROR(CheckStep(*step));
    steps.push_back(*step);
  } else {
    CAIRN_ASSIGN_OR_RETURN(steps, Steps(job));
    std::reverse(steps.begin(), steps.end());
  }
  for (int64_t candidate : steps) {
    CAIRN_ASSIGN_OR_RETURN(const Step listed, ListStep(job, candidate));
    for (auto attempt = listed.verdict.rbegin(); attempt != listed.verdict.rend(); ++attempt) {
      const auto verdict = Read(job, candidate, *attempt);
      // A damaged manifest is not passed over in silence: an older step would be loaded in its place.
      if (!verdict.ok()) return verdict.status();
      if (!verdict->committed) continue;
      const std::string key =
          absl::StrCat(VerdictPath(job, candidate, *attempt), "@", absl::ToUnixNanos(verdict->commit_time));
      {
        MutexLock lock(mutex_);
        if (bytes_key_ == key) return bytes_;
      }
      CAIRN_ASSIGN_OR_RETURN(std::string bytes, ReadBytes(job, candidate, *attempt));
      ManifestBytes found{candidate, *attempt, std::make_shared<const std::string>(std::move(bytes))};
      MutexLock lock(mutex_);
      bytes_key_ = key;
      bytes_ = found;
      return found;
    }
  }
  const std::string name = step.has_value() ? absl::StrCat(job, "@", *step) : job;
  ErrorMetadata metadata = {{"job", job}};
  if (step.has_value()) metadata.emplace_back("step", absl::StrCat(*step));
  return MakeError(Reason::kNotCommitted, absl::StrCat(name, " has no committed checkpoint"), metadata);
}

absl::StatusOr<std::shared_ptr<const Manifest>> Catalog::ReadManifest(const std::string& job,
                                                                      std::optional<int64_t> step) {
  CAIRN_ASSIGN_OR_RETURN(const ManifestBytes found, ReadManifestBytes(job, step));
  const std::string path = VerdictPath(job, found.step, found.attempt);
  {
    MutexLock lock(mutex_);
    if (manifest_key_ == bytes_key_ && bytes_.bytes == found.bytes && manifest_ != nullptr) return manifest_;
  }
  absl::StatusOr<Verdict> verdict = DecodeVerdict(*found.bytes);
  if (!verdict.ok()) return Annotate(verdict.status(), path, {{"file", path}});
  auto manifest = std::make_shared<const Manifest>(std::get<Manifest>(*std::move(verdict)));
  if (manifest->job != job || manifest->step != found.step || manifest->attempt != found.attempt) {
    return MakeError(
        Reason::kManifestCorrupt,
        absl::StrCat(path, " is the manifest of ", manifest->job, "@", manifest->step, " attempt ", manifest->attempt),
        {{"job", job}, {"step", absl::StrCat(found.step)}, {"file", path}});
  }
  MutexLock lock(mutex_);
  if (bytes_.bytes == found.bytes) {
    manifest_key_ = bytes_key_;
    manifest_ = manifest;
  }
  return manifest;
}

}  // namespace cairn

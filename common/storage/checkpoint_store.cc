#include "common/storage/checkpoint_store.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "common/rpc/reason.h"
#include "common/storage/checkpoint_path.h"

namespace cairn {
namespace {

absl::Status NotCommitted(std::string_view job, std::optional<int64_t> step, std::optional<int64_t> latest) {
  const std::string name = step ? absl::StrCat(std::string(job), "@", *step) : std::string(job);
  ErrorMetadata metadata = {{"job", std::string(job)}};
  if (step) metadata.emplace_back("step", absl::StrCat(*step));
  return MakeError(
      Reason::kNotCommitted,
      absl::StrCat(name, " has no committed checkpoint; ",
                   latest ? absl::StrCat("the latest committed step is ", *latest) : std::string("the job has none")),
      metadata);
}

}  // namespace

absl::StatusOr<std::vector<CheckpointStore::Attempt>> CheckpointStore::Attempts(std::string_view job, int64_t step) {
  CAIRN_RETURN_IF_ERROR(CheckJobName(job));
  const auto entries = storage_.List(StepDirectory(job, step));
  if (!entries.ok()) {
    if (HasReason(entries.status(), Reason::kFileMissing)) return std::vector<Attempt>();
    return entries.status();
  }
  std::map<uint32_t, Attempt> attempts;
  const auto of = [&](uint32_t number) -> Attempt& {
    Attempt& attempt = attempts[number];
    attempt.step = step;
    attempt.attempt = number;
    return attempt;
  };
  for (const PosixStorage::Entry& entry : *entries) {
    if (entry.directory) {
      if (const auto number = ParseAttemptName(entry.name)) of(*number).directory = true;
    } else if (const auto number = ParseVerdictName(entry.name)) {
      of(*number).verdict = true;
    }
  }
  std::vector<Attempt> list;
  for (const auto& [number, attempt] : attempts) list.push_back(attempt);
  return list;
}

absl::StatusOr<std::vector<CheckpointStore::Attempt>> CheckpointStore::Attempts(std::string_view job) {
  CAIRN_RETURN_IF_ERROR(CheckJobName(job));
  const auto entries = storage_.List(job);
  std::vector<Attempt> all;
  if (!entries.ok()) {
    if (HasReason(entries.status(), Reason::kFileMissing)) return all;
    return entries.status();
  }
  for (const PosixStorage::Entry& entry : *entries) {
    const auto step = entry.directory ? ParseStepName(entry.name) : std::nullopt;
    if (!step) continue;
    CAIRN_ASSIGN_OR_RETURN(const auto attempts, Attempts(job, *step));
    all.insert(all.end(), attempts.begin(), attempts.end());
  }
  return all;
}

absl::StatusOr<Verdict> CheckpointStore::ReadVerdict(std::string_view job, int64_t step, uint32_t attempt) {
  const std::string path = VerdictPath(job, step, attempt);
  CAIRN_ASSIGN_OR_RETURN(const std::string bytes, storage_.ReadFile(path, kMaxVerdictBytes));
  auto verdict = DecodeVerdict(bytes);
  if (!verdict.ok()) {
    return Annotate(verdict.status(), absl::StrCat(storage_.root(), "/", path),
                    {{"job", std::string(job)}, {"step", absl::StrCat(step)}, {"file", path}});
  }
  return verdict;
}

absl::StatusOr<std::optional<Manifest>> CheckpointStore::ManifestOf(std::string_view job,
                                                                    const std::vector<Attempt>& attempts,
                                                                    int64_t step) {
  for (const Attempt& attempt : attempts) {
    if (attempt.step != step || !attempt.verdict) continue;
    auto verdict = ReadVerdict(job, step, attempt.attempt);
    if (!verdict.ok()) {
      // It went between listing and reading: a deletion.
      if (HasReason(verdict.status(), Reason::kFileMissing)) continue;
      return verdict.status();
    }
    if (auto* manifest = std::get_if<Manifest>(&*verdict)) return std::optional<Manifest>(std::move(*manifest));
  }
  return std::optional<Manifest>();
}

absl::StatusOr<Manifest> CheckpointStore::ReadManifest(std::string_view job, std::optional<int64_t> step) {
  if (step) CAIRN_RETURN_IF_ERROR(CheckStep(*step));
  CAIRN_ASSIGN_OR_RETURN(const auto attempts, Attempts(job));
  std::vector<int64_t> steps;
  for (const Attempt& attempt : attempts) {
    if (steps.empty() || steps.back() != attempt.step) steps.push_back(attempt.step);
  }
  if (step) {
    CAIRN_ASSIGN_OR_RETURN(auto manifest, ManifestOf(job, attempts, *step));
    if (manifest) return *std::move(manifest);
  }
  for (size_t i = steps.size(); i-- > 0;) {
    auto manifest = ManifestOf(job, attempts, steps[i]);
    if (!manifest.ok()) {
      if (step) continue;  // only searched for a hint
      return manifest.status();
    }
    if (!*manifest) continue;
    if (step) return NotCommitted(job, step, steps[i]);
    return **std::move(manifest);
  }
  return NotCommitted(job, step, std::nullopt);
}

absl::StatusOr<CheckpointStore::Committed> CheckpointStore::ListCommitted(std::string_view job) {
  CAIRN_ASSIGN_OR_RETURN(const auto attempts, Attempts(job));
  Committed committed;
  for (size_t i = 0; i < attempts.size(); ++i) {
    if (i > 0 && attempts[i].step == attempts[i - 1].step) continue;
    auto manifest = ManifestOf(job, attempts, attempts[i].step);
    if (!manifest.ok()) {
      committed.faults.push_back(manifest.status());
    } else if (*manifest) {
      committed.manifests.push_back(**std::move(manifest));
    }
  }
  return committed;
}

}  // namespace cairn

#include "coordinator/server/state_watch.h"

#include <algorithm>
#include <cstddef>

#include "common/format/import_writer.h"
#include "common/process/log.h"
#include "coordinator/alarms/find_alarms.h"

namespace cairn {
namespace {

constexpr size_t kMostJobs = 64;

}  // namespace

void StateWatch::Look(const std::string& job, const AlarmPolicy& policy, std::optional<int64_t> builds_on,
                      const std::vector<bool>& zero_shards, Manifest& manifest) {
  if (manifest.summaries.empty() || !policy.wanted()) return;
  const SummaryPtr before = builds_on.has_value() ? Find(job, *builds_on) : nullptr;
  auto now = std::make_shared<StateSummary>(SummaryOf(manifest));
  for (size_t i = 0; i < zero_shards.size(); ++i) now->shards[i].zeros = now->shards[i].zeros || zero_shards[i];
  for (Alarm& alarm : FindAlarms(before.get(), *now)) {
    if (policy.LevelOf(alarm.kind) != AlarmPolicy::Level::kOff) manifest.alarms.push_back(std::move(alarm));
  }
  for (const StateSummary::Tensor& tensor : now->tensors) manifest.histories.push_back(tensor.history);
  for (const StateSummary::Object& object : now->objects) manifest.object_histories.push_back(object.history);
  Keep(job, std::move(now));
}

StateWatch::SummaryPtr StateWatch::Find(const std::string& job, int64_t step) {
  {
    MutexLock lock(mutex_);
    for (const auto& [name, summary] : kept_) {
      if (name == job && summary->step == step) return summary;
    }
  }
  const absl::StatusOr<CheckpointStore::ManifestPtr> manifest = checkpoints_.SharedManifest(job, step);
  if (!manifest.ok()) {
    Log(LogLevel::kWarn, "alarms_skipped", {{"job", job}, {"step", step}, {"error", manifest.status()}});
    return nullptr;
  }
  // An earlier version has written none, and an import has the names and dtypes of another program.
  if ((*manifest)->summaries.empty() || IsImport((*manifest)->writer)) return nullptr;
  return std::make_shared<StateSummary>(SummaryOf(**manifest));
}

void StateWatch::Keep(const std::string& job, SummaryPtr summary) {
  MutexLock lock(mutex_);
  kept_.remove_if([&](const auto& kept) { return kept.first == job; });
  kept_.emplace_front(job, std::move(summary));
  if (kept_.size() > kMostJobs) kept_.pop_back();
}

}  // namespace cairn

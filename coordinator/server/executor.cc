#include "coordinator/server/executor.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <map>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/overloaded.h"
#include "common/base/random_id.h"
#include "common/base/version.h"
#include "common/format/alarm.h"
#include "common/format/import_writer.h"
#include "common/process/log.h"
#include "common/status/fault.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "foreign/read/foreign_directory.h"
#include "planner/load/misspelt_names.h"
#include "planner/save/dropped_names.h"
#include "store/read/check_files.h"
#include "store/read/stored_progress.h"

namespace cairn {
namespace {

constexpr size_t kMaxNames = 8;
constexpr size_t kMaxFirstStarts = 1000;

// An error's message is cut at 512 bytes (common/status/reason.h), and may get words before it. How many names there
// are must not be lost by that, so fewer of them are listed.
constexpr size_t kListBytes = 400;

// Returns the first names, at least one and as many more as `bytes` have room for, and the number of the others.
std::string JoinNames(const std::vector<std::string>& names, size_t bytes = kListBytes) {
  std::string text;
  size_t shown = 0;
  for (; shown < std::min(names.size(), kMaxNames); ++shown) {
    if (shown > 0 && text.size() + names[shown].size() > bytes) break;
    absl::StrAppend(&text, shown == 0 ? "" : ", ", names[shown]);
  }
  if (names.size() > shown) absl::StrAppend(&text, " and ", names.size() - shown, " more");
  return text;
}

// What the source has and the target does not want: one of these may be meant by a name that is missing.
std::vector<std::string_view> UnwantedNames(const LoadPlan& plan, const Manifest* manifest) {
  std::vector<std::string_view> names(plan.unexpected().begin(), plan.unexpected().end());
  if (manifest == nullptr) return names;
  for (const ManifestObject& object : manifest->objects) {
    if (names.empty() || names.back() != object.name) names.push_back(object.name);
  }
  return names;
}

// Returns the last of `steps`, which ascend, that is below `step`.
std::optional<int64_t> NewestBelow(const std::vector<int64_t>& steps, int64_t step) {
  const auto place = std::lower_bound(steps.begin(), steps.end(), step);
  return place == steps.begin() ? std::nullopt : std::optional(*std::prev(place));
}

// Keeps both a plan and the files that it reads.
using Holds = std::pair<std::shared_ptr<const void>, std::shared_ptr<const void>>;

uint64_t TransportBytes(const LoadTotals& totals, const std::vector<std::string>& memory) {
  uint64_t bytes = 0;
  if (memory.empty()) return bytes;
  for (const LoadTotals::RankPair& pair : totals.copies) {
    const std::string& from = memory[static_cast<size_t>(pair.from)];
    if (from.empty() || from != memory[static_cast<size_t>(pair.to)]) bytes += pair.bytes;
  }
  return bytes;
}

// Returns the ranks whose agents still have the files of this checkpoint in memory.
std::vector<int> KeepersOf(const Manifest& manifest, const std::vector<PlanLoad::Kept>& kept) {
  std::vector<int> keepers;
  for (size_t rank = 0; rank < kept.size(); ++rank) {
    if (kept[rank].attempt != 0 && kept[rank].attempt == manifest.attempt && kept[rank].step == manifest.step) {
      keepers.push_back(static_cast<int>(rank));
    }
  }
  return keepers;
}

// Returns by shard whether its writer has told that all its elements are zeros; nothing if some writers tell nothing.
// `results` are those of which the manifest was made, by rank.
std::vector<bool> ZeroShards(const Manifest& manifest, std::span<const v1::WriteResult> results) {
  if (manifest.summaries.empty()) return {};
  std::vector<const v1::FileResult*> reports;  // by file
  std::vector<int> next(results.size());
  for (const ManifestFile& file : manifest.files) {
    const auto rank = static_cast<size_t>(file.rank);
    reports.push_back(&results[rank].files(next[rank]++));
  }
  std::vector<bool> zeros;
  zeros.reserve(manifest.shards.size());
  for (const ManifestShard& shard : manifest.shards) {
    const DType dtype = manifest.tensors[shard.tensor].dtype;
    const uint64_t elements = reports[shard.file]->summaries().zeros(static_cast<int>(shard.item));
    zeros.push_back(elements > 0 && elements * static_cast<uint64_t>(BytesOf(dtype)) == shard.bytes);
  }
  return zeros;
}

}  // namespace

absl::StatusOr<StoredAttempts> Executor::Run(const std::string& job, const RecoverJob&) {
  if (mirror_ != nullptr) mirror_->Look(job);
  auto recovered = checkpoints_.Recover(job);
  checkpoints_.KeepIndex(job);
  return recovered;
}

absl::StatusOr<StoredAttempts> Executor::Run(const std::string& job, const ReadStep& action) {
  return checkpoints_.RecoverStep(job, action.step);
}

absl::StatusOr<PlannedSave> Executor::Run(const std::string&, const PlanSave& action) {
  CAIRN_ASSIGN_OR_RETURN(const SavePlan plan, plans_.MakeSave(action.layout, action.node));
  PlannedSave planned = {plan.digest(),
                         plan.total_bytes(),
                         {},
                         secret_.TokenFor(plan.digest()),
                         plans_.HoldSave(plan.digest(), action.layout, action.node)};
  for (const MovingRanks& pair : plan.MovePairs()) planned.moves.push_back({pair.from, pair.to, pair.bytes});
  return planned;
}

void Executor::Keep(const PlanSave& action, const PlannedSave& plan) {
  // A plan that cannot be kept is made again after a restart: no reason to fail a save.
  plans_.Persist(plan.plan_digest, action.layout, action.node).IgnoreError();
}

absl::Status Executor::CheckNames(const std::string& job, const ReserveAttempt& action, const SavePlan& plan) {
  const int64_t step = action.step;
  // A damaged checkpoint must not keep the job from making a valid one.
  CAIRN_ASSIGN_OR_RETURN(const CheckpointStore::ManifestPtr last,
                         checkpoints_.ReadNewestReadable(job, plan.digest(), action.left_behind));
  // The names of an import are those that another program chose. What a trainer makes of them is no accident.
  if (last == nullptr || IsImport(last->writer)) return absl::OkStatus();
  const std::vector<std::string> dropped = DroppedNames(*last, plan);
  if (dropped.empty()) return absl::OkStatus();
  return MakeError(Reason::kNamesDropped,
                   absl::StrCat("the save lacks names of step ", last->step, ": ", JoinNames(dropped)),
                   {{"job", job},
                    {"step", absl::StrCat(step)},
                    {"last_committed", absl::StrCat(last->step)},
                    {"names", JoinNames(dropped)},
                    {"count", absl::StrCat(dropped.size())}});
}

absl::StatusOr<Reserved> Executor::Run(const std::string& job, const ReserveAttempt& action) {
  if (!action.allow_dropped_names) {
    CAIRN_ASSIGN_OR_RETURN(const SavePlan plan, plans_.FindSave(action.plan_digest));
    CAIRN_RETURN_IF_ERROR(CheckNames(job, action, plan));
  }
  if (mirror_ == nullptr) return attempts_.Reserve(job, action);
  CAIRN_RETURN_IF_ERROR(mirror_->changes().MayReplace(job, action));
  // A root that was lost had attempts of the same numbers, and the mirror may have them.
  ReserveAttempt above = action;
  above.above = std::max(above.above, mirror_->view().HighestAttempt(job, action.step));
  return attempts_.Reserve(job, above);
}

absl::StatusOr<MadeManifest> Executor::Run(const std::string& job, const MakeManifest& action) {
  CAIRN_ASSIGN_OR_RETURN(const SavePlan plan, plans_.FindSave(action.plan_digest));
  std::vector<RankResult> results;
  std::vector<HolderChecksums> holders;
  for (size_t i = 0; i < action.result.size(); ++i) {
    const int rank = static_cast<int>(i);
    results.push_back({rank, action.result[i]});
    if (!action.replica_checksum[i].empty()) holders.push_back({rank, action.replica_checksum[i]});
  }
  FaultList faults, differing;
  plan.CompareReplicas(results, holders, faults, action.replicas_must_match ? faults : differing);
  CAIRN_RETURN_IF_ERROR(faults.ToStatus());
  CommitInfo commit;
  commit.job = job;
  commit.step = action.step;
  commit.attempt = action.attempt;
  commit.request_id = action.request_id;
  commit.world_size = static_cast<uint32_t>(action.result.size());
  commit.commit_time = clock_.WallNow();
  commit.writer = absl::StrCat("cairn ", std::string(kVersion));
  CAIRN_ASSIGN_OR_RETURN(Manifest manifest, plan.MakeManifest(results, commit));
  manifest.lineage = WithFirstLine(action.lineage, RandomId());
  if (mirror_ != nullptr) manifest.lineage = mirror_->view().Continue(job, manifest.lineage);
  manifest.metrics = action.metrics;
  std::sort(manifest.metrics.begin(), manifest.metrics.end(),
            [](const Metric& a, const Metric& b) { return a.name < b.name; });
  watch_.Look(job, action.alarms, action.builds_on, ZeroShards(manifest, action.result), manifest);
  if (!differing.empty() && action.alarms.LevelOf(alarm::kReplicasDiffer) != AlarmPolicy::Level::kOff) {
    manifest.alarms.push_back({std::string(alarm::kReplicasDiffer), std::string(differing.ToStatus().message())});
  }
  auto bins = std::make_shared<std::vector<BinFile>>();
  for (const ManifestFile& file : manifest.files) {
    bins->push_back({absl::StrCat(file.name, ".safetensors"), file.rank, file.header_bytes + file.data_bytes});
  }
  return MadeManifest{std::make_shared<const std::string>(EncodeOutcome(manifest)), manifest.total_bytes(),
                      std::move(bins), manifest.alarms};
}

PutAnswer Executor::Run(const std::string& job, const PutOutcome& action) {
  PutAnswer answer = attempts_.Put(job, action);
  const bool may_stand = !answer.standing.ok() || answer.standing->stands();
  if (mirror_ != nullptr && may_stand) mirror_->Look(job, {action.step});
  return answer;
}

absl::Status Executor::Run(const std::string& job, const RemoveFiles& action) {
  return action.deleted ? deletions_.Remove(job, action.step, action.attempt, action.latest)
                        : attempts_.Remove(job, action.step, action.attempt);
}

absl::StatusOr<ChangedSteps> Executor::Run(const std::string& job, const ChangeSteps& action) {
  if (mirror_ == nullptr) return Change(job, action);
  const auto* deletion = std::get_if<DeleteStep>(&action.change);
  const auto* tag = std::get_if<TagStep>(&action.change);
  const auto* pin = std::get_if<PinStep>(&action.change);
  std::optional<Turns::Turn> order(std::in_place, mirror_->orders(), job);
  absl::StatusOr<ChangedSteps> changed = Change(job, action);
  const bool none = HasReason(changed.status(), Reason::kNotCommitted);
  const bool repeated =
      deletion != nullptr && changed.ok() && changed->deleted.size() == changed->deleted_before.size();
  const bool untags = tag != nullptr && !tag->step.has_value() && changed.ok();
  if (untags) {
    for (const int64_t step : changed->untagged) mirror_->marks().Unmark(job, step, tag->tag);
  }
  if (changed.ok() && pin != nullptr && !pin->pinned) mirror_->marks().Unmark(job, pin->step, "");
  if (changed.ok()) mirror_->NoteDeleted(job, changed->deleted);
  // What storage has failed to do may have had its effect. What Cairn itself refuses had none.
  const absl::Status failed = changed.ok() ? changed->ended_by : changed.status();
  bool refused = false;
  for (const Reason reason :
       {Reason::kNotCommitted, Reason::kBadRequest, Reason::kCheckpointPinned, Reason::kLastCheckpoint}) {
    refused = refused || HasReason(failed, reason);
  }
  if (!failed.ok() && !refused) mirror_->Look(job);
  order.reset();  // what follows waits for the mirror's storage
  if (none || repeated || untags) {
    // The step may stand only at the mirror.
    absl::StatusOr<std::optional<ChangedSteps>> there = mirror_->changes().Change(job, action);
    CAIRN_RETURN_IF_ERROR(there.status());
    if (!there->has_value()) return changed;
    if (!untags) return **std::move(there);
    changed->untagged.insert(changed->untagged.end(), (*there)->untagged.begin(), (*there)->untagged.end());
    return changed;
  }
  if (!changed.ok()) return changed;
  if (deletion != nullptr) {
    const std::optional<MirrorStep> seen = mirror_->view().Find(job, deletion->step);
    changed->mirror_follows = seen.has_value() && seen->unwanted();
  }
  std::vector<int64_t> steps;
  if (pin != nullptr) steps.push_back(pin->step);
  if (tag != nullptr) steps.push_back(*tag->step);
  mirror_->Look(job, steps);
  return changed;
}

absl::StatusOr<ChangedSteps> Executor::Change(const std::string& job, const ChangeSteps& action) {
  const auto prune_with_mirror = [&](PruneSteps prune) {
    if (mirror_ != nullptr) {
      prune.awaits_mirror = [&](int64_t step) { return mirror_->view().Awaits(job, step); };
      prune.is_safe_elsewhere = [&](int64_t step) { return mirror_->reader().MayRulesDelete(job, step); };
    }
    auto pruned = deletions_.Prune(job, prune);
    checkpoints_.KeepIndex(job);  // it is asked for behind each commit
    return pruned;
  };
  const auto tag_with_mirror = [&](const TagStep& tag) -> absl::StatusOr<ChangedSteps> {
    const std::optional<int64_t> taken =
        mirror_ == nullptr || !tag.step.has_value() ? std::nullopt : mirror_->view().OnlyThereWithTag(job, tag.tag);
    if (taken.has_value() && taken != tag.step) return DeletionStore::TagIsTaken(job, tag.tag, *taken);
    return deletions_.Tag(job, tag);
  };
  return std::visit(Overloaded{
                        [&](const DeleteStep& one) { return deletions_.Delete(job, one, action.latest); },
                        [&](const DeleteReplaced& replaced) { return deletions_.Delete(job, replaced); },
                        [&](const PinStep& pin) { return deletions_.Pin(job, pin); },
                        [&](const TagStep& tag) { return tag_with_mirror(tag); },
                        [&](const PruneSteps& prune) { return prune_with_mirror(prune); },
                        [&](const SetRetention& policy) { return deletions_.SetPolicy(job, policy); },
                    },
                    action.change);
}

absl::StatusOr<PlannedLoad> Executor::Run(const std::string& job, const PlanLoad& action) {
  auto planned = Plan(job, action);
  if (planned.ok()) {
    if (planned->IsStep()) {
      planned->older_step = action.known == nullptr ? checkpoints_.CommittedBelow(job, planned->step)
                                                    : NewestBelow(action.known->committed, planned->step);
    }
    return planned;
  }
  int64_t step = 0;
  if (!absl::IsDataLoss(planned.status()) || !absl::SimpleAtoi(MetadataOf(planned.status())["step"], &step)) {
    return planned;
  }
  const std::optional<int64_t> older = checkpoints_.ValidBelow(job, step);
  return older.has_value() ? WithMetadata(planned.status(), {{"older_step", absl::StrCat(*older)}}) : planned.status();
}

absl::StatusOr<uint64_t> Executor::Run(const std::string&, const VerifyLoad& action) {
  return action.check->Compare(action.parts);
}

void Executor::NoteFirstStart(const std::string& job) {
  {
    MutexLock lock(mutex_);
    if (first_starts_.size() >= kMaxFirstStarts || !first_starts_.insert(job).second) return;
  }
  Storage& storage = checkpoints_.storage();
  const std::string note = ProgressNote(LookForProgress(storage, job), job, storage.root());
  if (!note.empty()) Log(LogLevel::kWarn, "first_start", {{"job", job}, {"note", note}});
}

absl::StatusOr<Executor::Source> Executor::FindAtRoot(const std::string& job, const PlanLoad& action) {
  Source found;
  if (!action.step.has_value()) {
    CAIRN_ASSIGN_OR_RETURN(auto valid, checkpoints_.FindValid(job, action.fallback, action.known.get()));
    found.manifest = std::move(valid.manifest);
    found.passed_over = std::move(valid.passed_over);
    return found;
  }
  CAIRN_ASSIGN_OR_RETURN(found.manifest, checkpoints_.SharedManifest(job, action.step));
  // Where there is another copy, it is worth knowing whether this one has all its files.
  if (mirror_ != nullptr) CAIRN_RETURN_IF_ERROR(CheckFilesOf(checkpoints_.storage(), *found.manifest));
  return found;
}

absl::StatusOr<std::optional<Executor::Source>> Executor::FindAtMirror(const std::string& job, const PlanLoad& action,
                                                                       const absl::StatusOr<Source>& at_root) {
  const absl::Status& refused = at_root.status();
  const bool nothing = HasReason(refused, Reason::kNotCommitted);
  if (!at_root.ok() && !nothing && !IsProvenDamage(refused)) return std::nullopt;
  const bool damaged = at_root.ok() && action.damaged.contains(at_root->manifest->step);
  if (at_root.ok() && !damaged) {
    if (action.step.has_value()) return std::nullopt;
    if (at_root->passed_over.empty() && mirror_->IsLatest(job, at_root->manifest->step)) return std::nullopt;
  }
  absl::StatusOr<MirrorReader::Found> found =
      action.step.has_value()
          ? mirror_->reader().Find(job, *action.step)
          : mirror_->reader().FindLatest(job, (at_root.ok() && !damaged) || action.fallback, action.damaged);
  if (!found.ok()) {
    if (HasReason(found.status(), Reason::kNotCommitted)) return std::nullopt;
    // A training that is told that there is nothing begins anew.
    if (nothing) return found.status();
    Log(LogLevel::kWarn, "not_loaded_from_mirror",
        {{"job", job}, {"mirror", mirror_->address()}, {"error", found.status()}, {"root", refused}});
    return std::nullopt;
  }
  const int64_t step = found->manifest->step;
  Log(LogLevel::kWarn, found->directory.empty() ? "load_by_records_of_mirror" : "load_from_mirror",
      {{"job", job},
       {"step", step},
       {"mirror", mirror_->address()},
       {"root", !at_root.ok() ? std::string(refused.message())
                : damaged     ? "an earlier load has found damage in its files"
                              : absl::StrCat("its latest whole step is ", at_root->manifest->step)}});
  Source source{std::move(found->manifest), {}, std::move(found->directory), std::move(found->hold)};
  // A step may be damaged at both.
  std::map<int64_t, absl::Status, std::greater<>> passed_over(found->passed_over.begin(), found->passed_over.end());
  if (at_root.ok()) {
    for (const auto& [newer, damage] : at_root->passed_over) {
      if (newer > step) passed_over[newer] = damage;
    }
  }
  source.passed_over.assign(passed_over.begin(), passed_over.end());
  return source;
}

absl::StatusOr<Executor::Source> Executor::FindSource(const std::string& job, const PlanLoad& action) {
  absl::StatusOr<Source> at_root = FindAtRoot(job, action);
  if (mirror_ != nullptr) {
    absl::StatusOr<std::optional<Source>> mirrored = FindAtMirror(job, action, at_root);
    if (!mirrored.ok()) {
      ErrorMetadata metadata = {{"job", job}};
      if (!HasReason(mirrored.status(), Reason::kRootInUse)) {
        metadata.emplace_back("next",
                              "Try again when the mirror can be reached. To go on without it, start the coordinator "
                              "without --mirror.");
      }
      const std::string says =
          IsProvenDamage(mirrored.status()) ? " has only damaged ones" : " does not say whether it has one";
      return Annotate(
          mirrored.status(),
          absl::StrCat("the root has no such checkpoint of ", job, ", and the mirror ", mirror_->address(), says),
          metadata);
    }
    if (mirrored->has_value()) return **std::move(mirrored);
  }
  const bool nothing = HasReason(at_root.status(), Reason::kNotCommitted);
  if (nothing && !action.step.has_value()) NoteFirstStart(job);
  return at_root;
}

absl::StatusOr<PlannedLoad> Executor::Plan(const std::string& job, const PlanLoad& action) {
  LoadWish wish;
  PlannedLoad planned;
  std::optional<LoadPlan> made;
  CheckpointStore::ManifestPtr manifest;  // null for a reshard
  Source source;
  std::string name = absl::StrCat(job, " (the source of the reshard)");
  ErrorMetadata metadata = {{"job", job}};
  if (!action.source_layout.empty()) {
    if (action.verify_fingerprints) {
      return MakeError(Reason::kBadRequest, absl::StrCat(name, " has no fingerprints"), metadata);
    }
    CAIRN_ASSIGN_OR_RETURN(const ReshardPlan reshard,
                           plans_.MakeReshard(action.source_layout, action.layout, action.node));
    planned.source_plan_digest = reshard.source.digest();
    planned.hold = plans_.HoldReshard(reshard);
    made = reshard.load;
  } else {
    CAIRN_ASSIGN_OR_RETURN(wish, plans_.WishOf(action.layout, action.node));
    std::vector<int> keepers;
    if (wish.import_directory.empty()) {
      CAIRN_ASSIGN_OR_RETURN(source, FindSource(job, action));
      manifest = source.manifest;
      planned.passed_over = std::move(source.passed_over);
      if (source.directory.empty()) {
        const auto seen = mirror_ == nullptr ? std::nullopt : mirror_->view().Find(job, manifest->step);
        if (seen.has_value() && seen->has_copy()) planned.copy = mirror_->address();
        keepers = KeepersOf(*manifest, action.kept);
      } else {
        planned.mirror = mirror_->address();
      }
      name = absl::StrCat(job, "@", manifest->step);
      metadata.emplace_back("step", absl::StrCat(manifest->step));
    } else {
      CAIRN_ASSIGN_OR_RETURN(Manifest imported, ReadForeignDirectory(wish.import_directory));
      manifest = std::make_shared<const Manifest>(std::move(imported));
      name = wish.import_directory;
    }
    if (action.verify_fingerprints && manifest->summaries.empty()) {
      const bool is_step = wish.import_directory.empty();
      metadata.emplace_back("next", is_step ? absl::StrCat("Load it without verify; `cairn verify ", name,
                                                           " --fingerprints` reads its files and computes them.")
                                            : "Load it without verify, or import it first (`cairn import`).");
      return MakeError(Reason::kBadRequest,
                       absl::StrCat(name, " has no fingerprints with which a load could be compared"), metadata);
    }
    CAIRN_ASSIGN_OR_RETURN(made, plans_.MakeLoad(*manifest, action.layout, action.node, action.round_bytes, wish,
                                                 std::move(keepers), source.directory, action.verify_fingerprints));
    planned.check = made->fingerprint_check();
    planned.hold = plans_.HoldLoad(*made);
    if (source.hold != nullptr) planned.hold = std::make_shared<const Holds>(planned.hold, source.hold);
    planned.step = manifest->step;
    planned.world_size = manifest->world_size;
    planned.is_foreign = !wish.import_directory.empty();
    for (const Alarm& alarm : manifest->alarms) planned.warnings.push_back(AlarmStatus(alarm, job, manifest->step));
  }
  const LoadPlan& plan = *made;
  const auto fault = [&](Reason reason, const std::vector<std::string>& names, const std::string& what,
                         const std::string& near = "") {
    ErrorMetadata more = metadata;
    more.emplace_back("names", JoinNames(names));
    more.emplace_back("count", absl::StrCat(names.size()));
    std::string text = absl::StrCat(name, " ", what, near, near.empty() ? ": " : " All of them: ");
    absl::StrAppend(&text, JoinNames(names, kListBytes - std::min(kListBytes, text.size())));
    return MakeError(reason, text, more);
  };
  if (action.strict && !plan.missing().empty()) {
    return fault(Reason::kMissingNames, plan.missing(),
                 absl::StrCat("lacks ", plan.missing().size(), plan.missing().size() == 1 ? " name" : " names",
                              " that the target wants",
                              wish.mapping != nullptr ? " (the statement '_ -> NAME' keeps one as it is)" : ""),
                 MisspeltNames(plan.missing(), UnwantedNames(plan, manifest.get())));
  }
  if (action.strict && !plan.unexpected().empty()) {
    return fault(Reason::kUnexpectedNames, plan.unexpected(),
                 absl::StrCat("has ", plan.unexpected().size(), plan.unexpected().size() == 1 ? " name" : " names",
                              " that the target does not want",
                              wish.mapping != nullptr ? " (the statement 'NAME -> _' leaves one out)" : ""));
  }
  planned.plan_digest = plan.digest();
  planned.transfer_token = secret_.TokenForLoad(plan.digest(), action.calls_digest);
  planned.missing = plan.missing();
  planned.unexpected = plan.unexpected();
  if (action.source_layout.empty()) planned.total_bytes_read = plan.unique_bytes();
  planned.unique_bytes = plan.unique_bytes();
  planned.transport_bytes = TransportBytes(plan.totals(), action.memory);
  return planned;
}

}  // namespace cairn

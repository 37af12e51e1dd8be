#include "coordinator/server/plan_store.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/base/digest.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "coordinator/server/worker_pool.h"

namespace cairn {
namespace {

constexpr char kDirectory[] = ".cairn/plans";
constexpr std::string_view kPlanEnding = ".plan";
// Plans on disk; older ones are made anew from what agents upload. Large ones are fewer.
constexpr size_t kRecordsKept = 16;
constexpr uint64_t kRecordBytesKept = uint64_t{1} << 30;
// Plans that a restarted coordinator makes ready unasked; so many are kept whatever their size.
constexpr size_t kPlansWarmed = 2;

std::string NameOf(std::string_view digest) { return absl::StrCat(DigestHex(digest), std::string(kPlanEnding)); }

std::string PathOf(std::string_view digest) { return absl::StrCat(kDirectory, "/", NameOf(digest)); }

absl::Status Unknown(std::string_view digest) {
  return MakeError(Reason::kPlanUnknown, absl::StrCat("no plan ", DigestHex(digest), " is known"));
}

absl::StatusOr<PlanFile> OpenPlan(Storage& storage, std::string_view digest) {
  CAIRN_ASSIGN_OR_RETURN(std::unique_ptr<StoredFile> stored, storage.Open(PathOf(digest)));
  return PlanFile::Open(std::move(stored));
}

// About what the plan of a save takes: as much as the distinct layouts that it was made from.
uint64_t BytesOf(const std::vector<std::shared_ptr<const std::string>>& layouts) {
  std::set<const std::string*> distinct;
  uint64_t bytes = 0;
  for (const auto& layout : layouts) bytes += distinct.insert(layout.get()).second ? layout->size() : 0;
  return bytes;
}

struct Listed {
  std::string digest;
  uint64_t bytes = 0;
};

// A storage whose directories are only names has none that is empty.
absl::StatusOr<std::vector<Storage::Entry>> ListDirectory(Storage& storage) {
  auto entries = storage.List(kDirectory);
  if (HasReason(entries.status(), Reason::kFileMissing)) return std::vector<Storage::Entry>();
  return entries;
}

// The plans on disk, newest first.
absl::StatusOr<std::vector<Listed>> ListPlans(Storage& storage) {
  CAIRN_ASSIGN_OR_RETURN(const auto entries, ListDirectory(storage));
  std::vector<std::tuple<absl::Time, std::string, uint64_t>> plans;  // by time of making
  for (const Storage::Entry& entry : entries) {
    if (!entry.name.ends_with(kPlanEnding)) continue;
    const std::string hex = entry.name.substr(0, entry.name.size() - kPlanEnding.size());
    if (hex.size() != 2 * kDigestBytes || !std::all_of(hex.begin(), hex.end(), absl::ascii_isxdigit)) continue;
    const auto file = storage.Open(absl::StrCat(kDirectory, "/", entry.name));
    if (!file.ok()) continue;
    plans.emplace_back((*file)->modified(), absl::HexStringToBytes(hex), (*file)->bytes());
  }
  std::sort(plans.rbegin(), plans.rend());
  std::vector<Listed> listed;
  listed.reserve(plans.size());
  for (auto& [made, digest, bytes] : plans) listed.push_back({std::move(digest), bytes});
  return listed;
}

// Returns whether a plan of `bytes` is one too many beside `kept`, which are newer.
bool IsOneTooMany(size_t kept, uint64_t kept_bytes, uint64_t bytes) {
  return kept >= kRecordsKept || (kept >= kPlansWarmed && kept_bytes + bytes > kRecordBytesKept);
}

}  // namespace

absl::StatusOr<std::vector<std::string>> PlanStore::Recover() {
  CAIRN_RETURN_IF_ERROR(storage_.MakeDirectories(kDirectory));
  CAIRN_ASSIGN_OR_RETURN(const std::vector<Listed> plans, ListPlans(storage_));
  std::list<Kept> kept;
  uint64_t kept_bytes = 0;
  std::set<std::string> used;  // file names
  std::set<std::string> digests;
  for (const auto& [digest, bytes] : plans) {
    if (IsOneTooMany(kept.size(), kept_bytes, bytes)) continue;
    const auto file = OpenPlan(storage_, digest);
    if (!file.ok()) continue;
    if (kept.size() < kPlansWarmed) {
      for (const PlanFile::Layout& layout : file->layouts()) {
        auto read = file->ReadLayout(layout);
        if (read.ok() && layouts_.Put(layout.digest, *std::move(read)).ok()) digests.insert(layout.digest);
      }
    }
    used.insert(NameOf(digest));
    kept.push_back({digest, bytes});
    kept_bytes += bytes;
  }
  CAIRN_ASSIGN_OR_RETURN(const auto entries, ListDirectory(storage_));
  std::vector<std::string> unused;
  for (const Storage::Entry& entry : entries) {
    if (!used.contains(entry.name)) unused.push_back(entry.name);
  }
  if (!unused.empty()) CAIRN_RETURN_IF_ERROR(storage_.RemoveAllOf(kDirectory, unused));
  MutexLock lock(mutex_);
  kept_ = std::move(kept);
  return std::vector<std::string>(digests.begin(), digests.end());
}

void PlanStore::Warm(const std::atomic<bool>& stop) {
  const auto plans = ListPlans(storage_);
  if (!plans.ok()) return;
  for (size_t i = 0; i < std::min(kPlansWarmed, plans->size()) && !stop; ++i) {
    // One that cannot be made again is made anew when it is needed.
    (void)FindSave((*plans)[i].digest);
  }
}

absl::StatusOr<PlanStore::Inputs> PlanStore::Collect(const std::vector<std::string>& layout,
                                                     const std::vector<std::string>& node, const PlanFile* file) {
  Inputs inputs;
  std::map<std::string_view, std::shared_ptr<const std::string>> held;
  for (size_t rank = 0; rank < layout.size(); ++rank) {
    std::shared_ptr<const std::string>& bytes = held[layout[rank]];
    if (bytes == nullptr) bytes = layouts_.Get(layout[rank]);
    if (const PlanFile::Layout* kept = file == nullptr ? nullptr : file->Find(layout[rank]);
        bytes == nullptr && kept != nullptr) {
      auto read = file->ReadLayout(*kept);
      if (read.ok() && Digest(*read) == kept->digest) bytes = std::make_shared<const std::string>(*std::move(read));
    }
    if (bytes == nullptr) {
      return MakeError(Reason::kPlanUnknown, absl::StrCat("the layout ", DigestHex(layout[rank]), " of rank ", rank,
                                                          " is not here (any more)"));
    }
    inputs.bytes.push_back(bytes);
    inputs.ranks.push_back({static_cast<int>(rank), node[rank], *bytes, layout[rank]});
  }
  return inputs;
}

const SavePlan* PlanStore::Take(const std::string& digest) {
  const auto found =
      std::find_if(saves_.begin(), saves_.end(), [&](const Made& made) { return made.plan.digest() == digest; });
  if (found == saves_.end()) return nullptr;
  saves_.splice(saves_.begin(), saves_, found);
  return &saves_.front().plan;
}

void PlanStore::Keep(const SavePlan& plan, uint64_t bytes) {
  if (Take(plan.digest()) != nullptr) return;
  saves_.push_front({plan, bytes});
  uint64_t all = 0;
  for (const Made& made : saves_) all += made.bytes;
  while (saves_.size() > kSavesKept || (saves_.size() > 2 && all > plan_bytes_)) {
    const std::string dropped = saves_.back().plan.digest();
    all -= saves_.back().bytes;
    saves_.pop_back();
    parts_.remove_if([&](const Part& part) {
      if (part.digest != dropped) return false;
      part_bytes_ -= part.bytes->size();
      return true;
    });
  }
}

absl::StatusOr<SavePlan> PlanStore::Make(const Inputs& inputs) {
  const Computing computing;
  {
    const std::string digest = SavePlanDigest(inputs.ranks, save_options_);
    MutexLock lock(mutex_);
    if (const SavePlan* known = Take(digest); known != nullptr) return *known;
  }
  const std::optional<SavePlan> like = FindLike(inputs);
  CAIRN_ASSIGN_OR_RETURN(const SavePlan plan, MakeSavePlan(inputs.ranks, save_options_, like ? &*like : nullptr));
  const uint64_t bytes = BytesOf(inputs.bytes);
  MutexLock lock(mutex_);
  Keep(plan, bytes);
  return plan;
}

std::optional<SavePlan> PlanStore::FindLike(const Inputs& inputs) {
  std::vector<SavePlan> plans;  // used last first
  {
    MutexLock lock(mutex_);
    for (const Made& made : saves_) {
      if (made.plan.ranks().size() == inputs.ranks.size()) plans.push_back(made.plan);
    }
  }
  std::optional<SavePlan> like;
  size_t most = 0;
  for (const SavePlan& plan : plans) {
    const size_t equal = plan.RanksWithEqualLayout(inputs.ranks);
    if (like && equal <= most) continue;
    like = plan;
    most = equal;
  }
  return like;
}

absl::StatusOr<SavePlan> PlanStore::MakeSave(const std::vector<std::string>& layout,
                                             const std::vector<std::string>& node) {
  CAIRN_ASSIGN_OR_RETURN(const Inputs inputs, Collect(layout, node));
  return Make(inputs);
}

absl::Status PlanStore::Persist(const std::string& digest, const std::vector<std::string>& layout,
                                const std::vector<std::string>& node) {
  {
    MutexLock lock(mutex_);
    if (!kept_.empty() && kept_.front().digest == digest) return absl::OkStatus();
    to_write_.push_front({digest, {save_options_.bins_per_rank, save_options_.moves, layout, node}});
    if (to_write_.size() > kRecordsKept) to_write_.pop_back();
    // One thread writes at a time, and nobody waits for it.
    if (std::exchange(writing_, true)) return absl::OkStatus();
  }
  absl::Status status;
  for (;;) {
    Writing next;
    std::list<Kept> kept;
    {
      MutexLock lock(mutex_);
      if (to_write_.empty()) {
        writing_ = false;
        return status;
      }
      next = std::move(to_write_.back());
      to_write_.pop_back();
      kept = kept_;
    }
    const auto written = Write(next);
    kept.remove_if([&](const Kept& each) { return each.digest == next.digest; });
    // A file may stand there all the same, so it is trimmed like the others; but it is written again when asked for.
    written.ok() ? kept.push_front({next.digest, *written}) : kept.push_back({next.digest, 0});
    status.Update(written.status());
    status.Update(Trim(kept));
    MutexLock lock(mutex_);
    kept_ = std::move(kept);
  }
}

absl::StatusOr<uint64_t> PlanStore::Write(const Writing& writing) {
  CAIRN_ASSIGN_OR_RETURN(const Inputs inputs, Collect(writing.inputs.layout, writing.inputs.node));
  CAIRN_RETURN_IF_ERROR(storage_.MakeDirectories(kDirectory));
  return WritePlanFile(storage_, PathOf(writing.digest), writing.inputs, inputs.bytes);
}

absl::Status PlanStore::Trim(std::list<Kept>& kept) {
  size_t count = 0;
  uint64_t bytes = 0;
  std::vector<std::string> unused;
  for (auto plan = kept.begin(); plan != kept.end();) {
    if (IsOneTooMany(count, bytes, plan->bytes)) {
      unused.push_back(NameOf(plan->digest));
      plan = kept.erase(plan);
      continue;
    }
    ++count;
    bytes += plan->bytes;
    ++plan;
  }
  return unused.empty() ? absl::OkStatus() : storage_.RemoveAllOf(kDirectory, unused);
}

absl::StatusOr<LoadPlan> PlanStore::MakeLoad(const Manifest& source, const std::vector<std::string>& layout,
                                             const std::vector<std::string>& node, uint64_t round_bytes,
                                             const LoadWish& wish, std::vector<int> keepers, std::string directory,
                                             bool verify_fingerprints) {
  CAIRN_ASSIGN_OR_RETURN(const Inputs inputs, Collect(layout, node));
  LoadOptions options;
  if (round_bytes != 0) options.round_bytes = std::max(round_bytes, kMinRoundBytes);
  options.mapping = wish.mapping;
  options.keepers = std::move(keepers);
  options.directory = std::move(directory);
  options.verify_fingerprints = verify_fingerprints;
  const Computing computing;
  return MakeLoadPlan(source, inputs.ranks, options);
}

absl::StatusOr<LoadWish> PlanStore::WishOf(const std::vector<std::string>& layout,
                                           const std::vector<std::string>& node) {
  CAIRN_ASSIGN_OR_RETURN(const Inputs inputs, Collect(layout, node));
  return ReadLoadWish(inputs.ranks);
}

absl::StatusOr<ReshardPlan> PlanStore::MakeReshard(const std::vector<std::string>& source_layout,
                                                   const std::vector<std::string>& layout,
                                                   const std::vector<std::string>& node) {
  CAIRN_ASSIGN_OR_RETURN(const Inputs sources, Collect(source_layout, node));
  CAIRN_ASSIGN_OR_RETURN(const Inputs targets, Collect(layout, node));
  const Computing computing;
  CAIRN_ASSIGN_OR_RETURN(const ReshardPlan plan, MakeReshardPlan(sources.ranks, targets.ranks, LoadOptions()));
  const uint64_t source_bytes = BytesOf(sources.bytes);
  MutexLock lock(mutex_);
  Keep(plan.source, source_bytes);
  return plan;
}

std::shared_ptr<const PlanStore::Held> PlanStore::Hold(const std::string& digest, Held held) {
  MutexLock lock(mutex_);
  std::erase_if(held_, [](const auto& entry) { return entry.second.expired(); });
  std::weak_ptr<const Held>& standing = held_[digest];
  if (auto before = standing.lock(); before != nullptr) return before;
  auto now = std::make_shared<const Held>(std::move(held));
  standing = now;
  return now;
}

std::shared_ptr<const PlanStore::Held> PlanStore::FindHeld(const std::string& digest) {
  MutexLock lock(mutex_);
  const auto found = held_.find(digest);
  return found == held_.end() ? nullptr : found->second.lock();
}

std::shared_ptr<const void> PlanStore::HoldSave(const std::string& digest, const std::vector<std::string>& layout,
                                                const std::vector<std::string>& node) {
  return Hold(digest, {std::nullopt, std::nullopt, layout, node});
}

std::shared_ptr<const void> PlanStore::HoldLoad(const LoadPlan& plan) {
  return Hold(plan.digest(), {std::nullopt, plan, {}, {}});
}

std::shared_ptr<const void> PlanStore::HoldReshard(const ReshardPlan& plan) {
  using Both = std::pair<std::shared_ptr<const void>, std::shared_ptr<const void>>;
  return std::make_shared<const Both>(Hold(plan.source.digest(), {plan.source, std::nullopt, {}, {}}),
                                      HoldLoad(plan.load));
}

absl::StatusOr<SavePlan> PlanStore::FindSave(const std::string& digest) {
  if (digest.size() != kDigestBytes) return Unknown(digest.substr(0, kDigestBytes));
  {
    MutexLock lock(mutex_);
    if (const SavePlan* known = Take(digest); known != nullptr) return *known;
  }
  const auto held = FindHeld(digest);
  if (held != nullptr && held->save.has_value()) return *held->save;
  if (held != nullptr && !held->load.has_value()) {
    // If room was needed for other layouts, these are on disk alone.
    if (const auto inputs = Collect(held->layout, held->node); inputs.ok()) return Make(*inputs);
  }
  const auto file = OpenPlan(storage_, digest);
  if (!file.ok() || file->inputs().bins != save_options_.bins_per_rank || file->inputs().moves != save_options_.moves) {
    return Unknown(digest);
  }
  const auto inputs = Collect(file->inputs().layout, file->inputs().node, &*file);
  if (!inputs.ok()) return Unknown(digest);
  const auto plan = Make(*inputs);
  if (!plan.ok() || plan->digest() != digest) return Unknown(digest);
  return plan;
}

absl::StatusOr<std::shared_ptr<const std::string>> PlanStore::PartFor(const std::string& digest, int rank) {
  const auto none = [&] {
    return MakeError(Reason::kPlanUnknown, absl::StrCat("rank ", rank, " has no part in plan ", DigestHex(digest)));
  };
  {
    MutexLock lock(mutex_);
    for (const Part& part : parts_) {
      if (part.digest == digest && part.rank == rank) return part.bytes;
    }
  }
  std::shared_ptr<const std::string> part;
  if (const auto held = FindHeld(digest); held != nullptr && held->load.has_value()) {
    part = std::make_shared<const std::string>(held->load->PartFor(rank));
  } else {
    CAIRN_ASSIGN_OR_RETURN(const SavePlan save, FindSave(digest));
    part = std::make_shared<const std::string>(save.PartFor(rank));
  }
  if (part->empty()) return none();
  if (part->size() <= kMaxChunkBytes) return part;
  MutexLock lock(mutex_);
  part_bytes_ += part->size();
  parts_.push_front({digest, rank, part});
  while (part_bytes_ > kPartBytesKept && parts_.size() > 1) {
    part_bytes_ -= parts_.back().bytes->size();
    parts_.pop_back();
  }
  return part;
}

}  // namespace cairn

#include "coordinator/server/plan_store.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/digest.h"
#include "common/process/worker_pool.h"
#include "common/status/reason.h"
#include "common/status/status.h"

namespace cairn {
namespace {

constexpr char kDirectory[] = ".cairn/plans";
constexpr std::string_view kPlanEnding = ".plan";
constexpr std::string_view kLayoutEnding = ".layout";
constexpr char kMagic[] = "cairn plan 1";
constexpr uint64_t kMaxRecordBytes = uint64_t{64} << 20;
// Plans on disk; older ones are made anew from what agents upload.
constexpr size_t kRecordsKept = 16;
// Plans that a restarted coordinator makes ready unasked.
constexpr int kPlansWarmed = 2;
// The planner accepts no smaller rounds.
constexpr uint64_t kMinRoundBytes = uint64_t{2} << 20;

std::string NameOf(std::string_view digest, std::string_view ending) {
  return absl::StrCat(DigestHex(digest), std::string(ending));
}

std::string PathOf(std::string_view digest, std::string_view ending) {
  return absl::StrCat(kDirectory, "/", NameOf(digest, ending));
}

absl::Status Unknown(std::string_view digest) {
  return MakeError(Reason::kPlanUnknown, absl::StrCat("no plan ", DigestHex(digest), " is known"));
}

// A plan's record: lines "cairn plan 1", "bins N moves auto|never", then per rank "LAYOUT-DIGEST NODE" with the node in
// hexadecimal.
struct Record {
  int bins = 0;
  MovePolicy moves = MovePolicy::kNever;
  std::vector<std::string> layout;
  std::vector<std::string> node;
};

constexpr char kMoves[] = " moves ";

const char* MovesName(MovePolicy moves) { return moves == MovePolicy::kAuto ? "auto" : "never"; }

std::string Render(const Record& record) {
  std::string text = absl::StrCat(kMagic, "\nbins ", record.bins, kMoves, MovesName(record.moves), "\n");
  for (size_t i = 0; i < record.layout.size(); ++i) {
    absl::StrAppend(&text, DigestHex(record.layout[i]), " ", absl::BytesToHexString(record.node[i]), "\n");
  }
  return text;
}

std::optional<Record> Parse(const std::string& text) {
  const std::vector<std::string> lines = absl::StrSplit(text, '\n');
  Record record;
  const std::vector<std::string> options =
      lines.size() < 3 ? std::vector<std::string>() : absl::StrSplit(lines[1], ' ');
  if (options.size() != 4 || lines[0] != kMagic || options[0] != "bins" || options[2] != "moves" ||
      !absl::SimpleAtoi(options[1], &record.bins)) {
    return std::nullopt;
  }
  record.moves = options[3] == "auto" ? MovePolicy::kAuto : MovePolicy::kNever;
  for (size_t i = 2; i + 1 < lines.size(); ++i) {
    const std::vector<std::string> words = absl::StrSplit(lines[i], ' ');
    if (words.size() != 2 || words[0].size() != 2 * kDigestBytes || words[1].size() % 2 != 0) return std::nullopt;
    const auto hex = [](const std::string& word) {
      return std::all_of(word.begin(), word.end(), [](unsigned char c) { return std::isxdigit(c) != 0; });
    };
    if (!hex(words[0]) || !hex(words[1])) return std::nullopt;
    record.layout.push_back(absl::HexStringToBytes(words[0]));
    record.node.push_back(absl::HexStringToBytes(words[1]));
  }
  return record;
}

template <typename Plan>
const Plan* Take(std::list<Plan>& plans, const std::string& digest) {
  for (auto plan = plans.begin(); plan != plans.end(); ++plan) {
    if (plan->digest() != digest) continue;
    plans.splice(plans.begin(), plans, plan);
    return &plans.front();
  }
  return nullptr;
}

// The digests of the plans on disk, newest first.
absl::StatusOr<std::vector<std::string>> ListPlans(PosixStorage& storage) {
  CAIRN_ASSIGN_OR_RETURN(const auto entries, storage.List(kDirectory));
  std::vector<std::tuple<time_t, long, std::string>> plans;  // by time of making
  for (const PosixStorage::Entry& entry : entries) {
    if (!entry.name.ends_with(kPlanEnding)) continue;
    const std::string hex = entry.name.substr(0, entry.name.size() - kPlanEnding.size());
    const auto file = storage.OpenFile(absl::StrCat(kDirectory, "/", entry.name), O_RDONLY);
    struct stat status = {};
    if (hex.size() != 2 * kDigestBytes || !file.ok() || fstat(file->get(), &status) != 0) continue;
    plans.emplace_back(status.st_mtim.tv_sec, status.st_mtim.tv_nsec, absl::HexStringToBytes(hex));
  }
  std::sort(plans.rbegin(), plans.rend());
  std::vector<std::string> digests;
  for (auto& [seconds, nanos, digest] : plans) digests.push_back(std::move(digest));
  return digests;
}

}  // namespace

absl::StatusOr<std::vector<std::string>> PlanStore::Recover() {
  CAIRN_RETURN_IF_ERROR(storage_.MakeDirectories(kDirectory));
  CAIRN_ASSIGN_OR_RETURN(const std::vector<std::string> plans, ListPlans(storage_));
  std::list<Kept> kept;
  std::set<std::string> used;  // file names
  for (const std::string& digest : plans) {
    const auto text = storage_.ReadFile(PathOf(digest, kPlanEnding), kMaxRecordBytes);
    auto record = text.ok() ? Parse(*text) : std::nullopt;
    // More than enough are there, or it cannot be read: it is made anew when it is needed.
    if (!record.has_value() || kept.size() >= kRecordsKept) continue;
    used.insert(NameOf(digest, kPlanEnding));
    for (const std::string& layout : record->layout) used.insert(NameOf(layout, kLayoutEnding));
    kept.push_back({digest, std::move(record->layout)});
  }
  CAIRN_ASSIGN_OR_RETURN(const auto entries, storage_.List(kDirectory));
  for (const PosixStorage::Entry& entry : entries) {
    if (used.contains(entry.name)) continue;
    CAIRN_RETURN_IF_ERROR(storage_.RemoveAll(absl::StrCat(kDirectory, "/", entry.name)));
  }
  std::set<std::string> digests;
  for (auto plan = kept.begin(); plan != kept.end() && std::distance(kept.begin(), plan) < kPlansWarmed; ++plan) {
    for (const std::string& digest : plan->layout) {
      auto bytes = storage_.ReadFile(PathOf(digest, kLayoutEnding), kMaxLayoutBytes);
      if (bytes.ok() && layouts_.Put(digest, *std::move(bytes)).ok()) digests.insert(digest);
    }
  }
  MutexLock lock(mutex_);
  kept_ = std::move(kept);
  return std::vector<std::string>(digests.begin(), digests.end());
}

void PlanStore::Warm(const std::atomic<bool>& stop) {
  const auto plans = ListPlans(storage_);
  if (!plans.ok()) return;
  for (int i = 0; i < std::min(kPlansWarmed, static_cast<int>(plans->size())) && !stop; ++i) {
    // One that cannot be made again is made anew when it is needed.
    (void)FindSave((*plans)[static_cast<size_t>(i)]);
  }
}

std::shared_ptr<const std::string> PlanStore::ReadLayout(const std::string& digest) {
  auto bytes = storage_.ReadFile(PathOf(digest, kLayoutEnding), kMaxLayoutBytes);
  if (!bytes.ok() || Digest(*bytes) != digest) return nullptr;
  return std::make_shared<const std::string>(*std::move(bytes));
}

absl::StatusOr<PlanStore::Inputs> PlanStore::Collect(const std::vector<std::string>& layout,
                                                     const std::vector<std::string>& node, bool from_disk) {
  Inputs inputs;
  std::map<std::string, std::shared_ptr<const std::string>> held;
  for (size_t rank = 0; rank < layout.size(); ++rank) {
    std::shared_ptr<const std::string>& bytes = held[layout[rank]];
    if (bytes == nullptr) bytes = layouts_.Get(layout[rank]);
    if (bytes == nullptr && from_disk) bytes = ReadLayout(layout[rank]);
    if (bytes == nullptr) {
      return MakeError(Reason::kPlanUnknown, absl::StrCat("the layout ", DigestHex(layout[rank]), " of rank ", rank,
                                                          " is not here (any more)"));
    }
    inputs.bytes.push_back(bytes);
    inputs.ranks.push_back({static_cast<int>(rank), node[rank], *bytes, layout[rank]});
  }
  return inputs;
}

template <typename Plan>
void PlanStore::Keep(std::list<Plan>& plans, const Plan& plan) {
  if (Take(plans, plan.digest()) != nullptr) return;
  plans.push_front(plan);
  if (plans.size() <= kPlansKept) return;
  const std::string dropped = plans.back().digest();
  plans.pop_back();
  parts_.remove_if([&](const Part& part) {
    if (part.digest != dropped) return false;
    part_bytes_ -= part.bytes->size();
    return true;
  });
}

absl::StatusOr<SavePlan> PlanStore::Make(const Inputs& inputs) {
  const Computing computing;
  {
    const std::string digest = SavePlanDigest(inputs.ranks, save_options_);
    MutexLock lock(mutex_);
    if (const SavePlan* known = Take(saves_, digest); known != nullptr) return *known;
  }
  CAIRN_ASSIGN_OR_RETURN(const SavePlan plan, MakeSavePlan(inputs.ranks, save_options_));
  MutexLock lock(mutex_);
  Keep(saves_, plan);
  return plan;
}

absl::StatusOr<SavePlan> PlanStore::MakeSave(const std::vector<std::string>& layout,
                                             const std::vector<std::string>& node) {
  CAIRN_ASSIGN_OR_RETURN(const Inputs inputs, Collect(layout, node, /*from_disk=*/false));
  return Make(inputs);
}

absl::Status PlanStore::Persist(const std::string& digest, const std::vector<std::string>& layout,
                                const std::vector<std::string>& node) {
  {
    MutexLock lock(mutex_);
    if (!kept_.empty() && kept_.front().digest == digest) return absl::OkStatus();
    to_write_.push_front({{digest, layout}, node});
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
      if (to_write_.empty() || !status.ok()) {
        writing_ = false;
        return status;
      }
      next = std::move(to_write_.back());
      to_write_.pop_back();
      kept = kept_;
    }
    kept.remove_if([&](const Kept& each) { return each.digest == next.kept.digest; });
    status = Write(next);
    // Also of one that was written in part: what it left is removed with it.
    kept.push_front(next.kept);
    if (absl::Status trimmed = Trim(kept); status.ok()) status = trimmed;
    MutexLock lock(mutex_);
    kept_ = std::move(kept);
  }
}

absl::Status PlanStore::Write(const Writing& writing) {
  CAIRN_RETURN_IF_ERROR(storage_.MakeDirectories(kDirectory));
  const std::set<std::string> distinct(writing.kept.layout.begin(), writing.kept.layout.end());
  for (const std::string& digest : distinct) {
    const std::string path = PathOf(digest, kLayoutEnding);
    const auto bytes = layouts_.Get(digest);
    if (bytes != nullptr && !storage_.Exists(path)) CAIRN_RETURN_IF_ERROR(storage_.PutReplacing(path, *bytes));
  }
  return storage_.PutReplacing(
      PathOf(writing.kept.digest, kPlanEnding),
      Render({save_options_.bins_per_rank, save_options_.moves, writing.kept.layout, writing.node}));
}

absl::Status PlanStore::Trim(std::list<Kept>& kept) {
  while (kept.size() > kRecordsKept) {
    const Kept oldest = std::move(kept.back());
    kept.pop_back();
    std::set<std::string> unused(oldest.layout.begin(), oldest.layout.end());
    for (const Kept& each : kept) {
      for (const std::string& digest : each.layout) unused.erase(digest);
    }
    CAIRN_RETURN_IF_ERROR(storage_.RemoveAll(PathOf(oldest.digest, kPlanEnding)));
    for (const std::string& digest : unused) CAIRN_RETURN_IF_ERROR(storage_.RemoveAll(PathOf(digest, kLayoutEnding)));
  }
  return absl::OkStatus();
}

absl::StatusOr<LoadPlan> PlanStore::MakeLoad(const Manifest& source, const std::vector<std::string>& layout,
                                             const std::vector<std::string>& node, uint64_t round_bytes,
                                             const LoadWish& wish) {
  CAIRN_ASSIGN_OR_RETURN(const Inputs inputs, Collect(layout, node, /*from_disk=*/false));
  LoadOptions options;
  if (round_bytes != 0) options.round_bytes = std::max(round_bytes, kMinRoundBytes);
  options.mapping = wish.mapping;
  const Computing computing;
  CAIRN_ASSIGN_OR_RETURN(const LoadPlan plan, MakeLoadPlan(source, inputs.ranks, options));
  MutexLock lock(mutex_);
  Keep(loads_, plan);
  return plan;
}

absl::StatusOr<LoadWish> PlanStore::WishOf(const std::vector<std::string>& layout,
                                           const std::vector<std::string>& node) {
  CAIRN_ASSIGN_OR_RETURN(const Inputs inputs, Collect(layout, node, /*from_disk=*/false));
  return ReadLoadWish(inputs.ranks);
}

absl::StatusOr<ReshardPlan> PlanStore::MakeReshard(const std::vector<std::string>& source_layout,
                                                   const std::vector<std::string>& layout,
                                                   const std::vector<std::string>& node) {
  CAIRN_ASSIGN_OR_RETURN(const Inputs sources, Collect(source_layout, node, /*from_disk=*/false));
  CAIRN_ASSIGN_OR_RETURN(const Inputs targets, Collect(layout, node, /*from_disk=*/false));
  const Computing computing;
  CAIRN_ASSIGN_OR_RETURN(const ReshardPlan plan, MakeReshardPlan(sources.ranks, targets.ranks, LoadOptions()));
  MutexLock lock(mutex_);
  Keep(saves_, plan.source);
  Keep(loads_, plan.load);
  return plan;
}

absl::StatusOr<SavePlan> PlanStore::FindSave(const std::string& digest) {
  if (digest.size() != kDigestBytes) return Unknown(digest.substr(0, kDigestBytes));
  {
    MutexLock lock(mutex_);
    if (const SavePlan* known = Take(saves_, digest); known != nullptr) return *known;
  }
  const auto text = storage_.ReadFile(PathOf(digest, kPlanEnding), kMaxRecordBytes);
  if (!text.ok()) return Unknown(digest);
  const std::optional<Record> record = Parse(*text);
  if (!record.has_value() || record->bins != save_options_.bins_per_rank || record->moves != save_options_.moves) {
    return Unknown(digest);
  }
  const auto inputs = Collect(record->layout, record->node, /*from_disk=*/true);
  if (!inputs.ok()) return Unknown(digest);
  const auto plan = Make(*inputs);
  if (!plan.ok() || plan->digest() != digest) return Unknown(digest);
  return plan;
}

absl::StatusOr<std::shared_ptr<const std::string>> PlanStore::PartFor(const std::string& digest, int rank) {
  std::optional<LoadPlan> load;
  {
    MutexLock lock(mutex_);
    for (const Part& part : parts_) {
      if (part.digest == digest && part.rank == rank) return part.bytes;
    }
    if (const LoadPlan* known = Take(loads_, digest); known != nullptr) load = *known;
  }
  std::string bytes;
  if (load.has_value()) {
    bytes = load->PartFor(rank);
  } else {
    CAIRN_ASSIGN_OR_RETURN(const SavePlan save, FindSave(digest));
    bytes = save.PartFor(rank);
  }
  if (bytes.empty()) {
    return MakeError(Reason::kPlanUnknown, absl::StrCat("rank ", rank, " has no part in plan ", DigestHex(digest)));
  }
  auto part = std::make_shared<const std::string>(std::move(bytes));
  MutexLock lock(mutex_);
  part_bytes_ += part->size();
  parts_.push_front({digest, rank, part});
  while ((part_bytes_ > kPartBytesKept || parts_.size() > kPartsKept) && parts_.size() > 1) {
    part_bytes_ -= parts_.back().bytes->size();
    parts_.pop_back();
  }
  return part;
}

}  // namespace cairn

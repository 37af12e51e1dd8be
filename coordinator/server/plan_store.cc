#include "coordinator/server/plan_store.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/digest.h"
#include "common/base/status.h"
#include "common/rpc/reason.h"

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
constexpr size_t kPlansWarmed = 2;
// Of the planner.
constexpr uint64_t kMinRoundBytes = uint64_t{2} << 20;

std::string PathOf(std::string_view digest, std::string_view ending) {
  return absl::StrCat(kDirectory, "/", DigestHex(digest), std::string(ending));
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

template <typename Plan>
void Keep(std::list<Plan>& plans, const Plan& plan, size_t capacity) {
  if (Take(plans, plan.digest()) != nullptr) return;
  plans.push_front(plan);
  if (plans.size() > capacity) plans.pop_back();
}

}  // namespace

absl::StatusOr<std::vector<std::string>> PlanStore::Recover() {
  CAIRN_RETURN_IF_ERROR(storage_.MakeDirectories(kDirectory));
  CAIRN_ASSIGN_OR_RETURN(const auto entries, storage_.List(kDirectory));
  std::vector<std::string> plans;
  std::set<std::string> used;
  for (const PosixStorage::Entry& entry : entries) {
    if (!entry.name.ends_with(kPlanEnding)) continue;
    const std::string path = absl::StrCat(kDirectory, "/", entry.name);
    const auto text = storage_.ReadFile(path, kMaxRecordBytes);
    const auto record = text.ok() ? Parse(*text) : std::nullopt;
    // More than enough are there, or it cannot be read: it is made anew when it is needed.
    if (!record.has_value() || plans.size() >= kRecordsKept) {
      CAIRN_RETURN_IF_ERROR(storage_.RemoveAll(path));
      continue;
    }
    plans.push_back(entry.name);
    for (const std::string& digest : record->layout) used.insert(DigestHex(digest));
  }
  std::vector<std::string> digests;
  for (const PosixStorage::Entry& entry : entries) {
    if (!entry.name.ends_with(kLayoutEnding)) continue;
    const std::string path = absl::StrCat(kDirectory, "/", entry.name);
    const std::string hex = entry.name.substr(0, entry.name.size() - kLayoutEnding.size());
    auto bytes = used.contains(hex) ? storage_.ReadFile(path, kMaxLayoutBytes) : absl::NotFoundError("not used");
    const std::string digest = hex.size() == 2 * kDigestBytes ? absl::HexStringToBytes(hex) : "";
    if (bytes.ok() && layouts_.Put(digest, *std::move(bytes)).ok()) {
      digests.push_back(digest);
    } else {
      CAIRN_RETURN_IF_ERROR(storage_.RemoveAll(path));
    }
  }
  return digests;
}

void PlanStore::Warm(const std::atomic<bool>& stop) {
  const auto entries = storage_.List(kDirectory);
  if (!entries.ok()) return;
  std::vector<std::pair<timespec, std::string>> plans;  // by time of making
  for (const PosixStorage::Entry& entry : *entries) {
    if (!entry.name.ends_with(kPlanEnding)) continue;
    const auto file = storage_.OpenFile(absl::StrCat(kDirectory, "/", entry.name), O_RDONLY);
    struct stat status = {};
    if (file.ok() && fstat(file->get(), &status) == 0) plans.emplace_back(status.st_mtim, entry.name);
  }
  std::sort(plans.begin(), plans.end(), [](const auto& a, const auto& b) {
    return std::tie(a.first.tv_sec, a.first.tv_nsec) > std::tie(b.first.tv_sec, b.first.tv_nsec);
  });
  for (size_t i = 0; i < plans.size() && i < kPlansWarmed && !stop; ++i) {
    const std::string hex = plans[i].second.substr(0, plans[i].second.size() - kPlanEnding.size());
    // One that cannot be made again is made anew when it is needed.
    if (hex.size() == 2 * kDigestBytes) (void)FindSave(absl::HexStringToBytes(hex));
  }
}

absl::StatusOr<PlanStore::Inputs> PlanStore::Collect(const std::vector<std::string>& layout,
                                                     const std::vector<std::string>& node) {
  Inputs inputs;
  std::map<std::string, std::shared_ptr<const std::string>> held;
  for (size_t rank = 0; rank < layout.size(); ++rank) {
    std::shared_ptr<const std::string>& bytes = held[layout[rank]];
    if (bytes == nullptr) bytes = layouts_.Get(layout[rank]);
    if (bytes == nullptr) {
      return MakeError(Reason::kPlanUnknown, absl::StrCat("the layout ", DigestHex(layout[rank]), " of rank ", rank,
                                                          " is not here (any more)"));
    }
    inputs.bytes.push_back(bytes);
    inputs.ranks.push_back({static_cast<int>(rank), node[rank], *bytes, layout[rank]});
  }
  return inputs;
}

absl::StatusOr<SavePlan> PlanStore::MakeSave(const std::vector<std::string>& layout,
                                             const std::vector<std::string>& node) {
  CAIRN_ASSIGN_OR_RETURN(const Inputs inputs, Collect(layout, node));
  {
    const std::string digest = SavePlanDigest(inputs.ranks, save_options_);
    MutexLock lock(mutex_);
    if (const SavePlan* known = Take(saves_, digest); known != nullptr) return *known;
  }
  CAIRN_ASSIGN_OR_RETURN(const SavePlan plan, MakeSavePlan(inputs.ranks, save_options_));
  // A plan that cannot be kept is made again after a restart: no reason to fail a save.
  Persist(plan, layout, node).IgnoreError();
  MutexLock lock(mutex_);
  Keep(saves_, plan, kPlansKept);
  return plan;
}

absl::Status PlanStore::Persist(const SavePlan& plan, const std::vector<std::string>& layout,
                                const std::vector<std::string>& node) {
  if (storage_.Exists(PathOf(plan.digest(), kPlanEnding))) return absl::OkStatus();
  CAIRN_RETURN_IF_ERROR(storage_.MakeDirectories(kDirectory));
  const std::set<std::string> distinct(layout.begin(), layout.end());
  for (const std::string& digest : distinct) {
    const std::string path = PathOf(digest, kLayoutEnding);
    const auto bytes = layouts_.Get(digest);
    if (bytes != nullptr && !storage_.Exists(path)) CAIRN_RETURN_IF_ERROR(storage_.PutReplacing(path, *bytes));
  }
  return storage_.PutReplacing(PathOf(plan.digest(), kPlanEnding),
                               Render({save_options_.bins_per_rank, save_options_.moves, layout, node}));
}

absl::StatusOr<LoadPlan> PlanStore::MakeLoad(const Manifest& source, const std::vector<std::string>& layout,
                                             const std::vector<std::string>& node, uint64_t round_bytes,
                                             const LoadWish& wish) {
  CAIRN_ASSIGN_OR_RETURN(const Inputs inputs, Collect(layout, node));
  LoadOptions options;
  if (round_bytes != 0) options.round_bytes = std::max(round_bytes, kMinRoundBytes);
  options.mapping = wish.mapping;
  CAIRN_ASSIGN_OR_RETURN(const LoadPlan plan, MakeLoadPlan(source, inputs.ranks, options));
  MutexLock lock(mutex_);
  Keep(loads_, plan, kPlansKept);
  return plan;
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
  CAIRN_ASSIGN_OR_RETURN(const ReshardPlan plan, MakeReshardPlan(sources.ranks, targets.ranks, LoadOptions()));
  MutexLock lock(mutex_);
  Keep(saves_, plan.source, kPlansKept);
  Keep(loads_, plan.load, kPlansKept);
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
  const auto plan = MakeSave(record->layout, record->node);
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
  while (part_bytes_ > kPartBytesKept && parts_.size() > 1) {
    part_bytes_ -= parts_.back().bytes->size();
    parts_.pop_back();
  }
  return part;
}

}  // namespace cairn

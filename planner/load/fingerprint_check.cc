#include "planner/load/fingerprint_check.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/status/fault.h"
#include "common/status/reason.h"
#include "planner/layout/validation.h"

namespace cairn {
namespace {

// What an error names of tensors.
constexpr size_t kMostNames = 4;
constexpr size_t kMostNameBytes = 80;

bool IsShard(uint32_t number) { return number != LayoutSet::kEmptyShard && number != LayoutSet::kInvalidShard; }

}  // namespace

// By shard.
struct FingerprintCheck::Held {
  std::vector<uint64_t> part;  // what its first holder has
  std::vector<bool> seen;
  std::map<uint32_t, std::map<uint64_t, std::vector<int>>> differing;  // the ranks by what they hold, if it differs
};

struct FingerprintCheck::Found {
  std::vector<std::string> names;
  std::set<int> ranks;
  uint64_t equal = 0;
};

FingerprintCheck::FingerprintCheck(const Manifest& source, LayoutSet targets, const NameMatch& match)
    : targets_(std::move(targets)), loaded_(targets_.tensors().size()), expected_(targets_.tensors().size()) {
  for (const AxisMap& link : match.links) loaded_[link.target] = true;
  for (uint32_t i = 0; i < targets_.tensors().size(); ++i) {
    if (match.source_of[i] == NameMatch::kNone) continue;
    loaded_[i] = true;
    const ManifestTensor& stored = source.tensors[match.source_of[i]];
    const LayoutSet::Tensor& tensor = targets_.tensors()[i];
    if (stored.dtype != tensor.dtype || stored.global_shape != tensor.global_shape || !IsTiled(targets_, i)) continue;
    expected_[i] = source.summaries[match.source_of[i]].fingerprint_parts;
  }
}

absl::StatusOr<uint64_t> FingerprintCheck::Compare(const std::vector<std::vector<uint64_t>>& parts) const {
  const std::vector<int>& ranks = targets_.ranks();
  Held held{std::vector<uint64_t>(targets_.shard_count()), std::vector<bool>(targets_.shard_count()), {}};
  std::set<uint32_t> differing;
  const auto each = [&](auto&& take) {
    for (size_t r = 0; r < ranks.size(); ++r) {
      const auto items = targets_.ItemsOf(targets_.layouts()[targets_.rank_layouts()[r]]);
      for (size_t i = 0; i < items.size(); ++i) {
        if (IsShard(items[i]) && loaded_[targets_.TensorOf(items[i])]) take(items[i], ranks[r], parts[r][i]);
      }
    }
  };
  for (size_t r = 0; r < ranks.size(); ++r) {
    const size_t shards = targets_.layouts()[targets_.rank_layouts()[r]].shards;
    const size_t sent = r < parts.size() ? parts[r].size() : 0;
    if (sent == shards) continue;
    return MakeError(
        Reason::kBadRequest,
        absl::StrCat("rank ", ranks[r], " has sent fingerprints of ", sent, " shards, and its layout has ", shards),
        {{"ranks", absl::StrCat(ranks[r])}});
  }
  each([&](uint32_t shard, int, uint64_t part) {
    if (!held.seen[shard]) {
      held.seen[shard] = true;
      held.part[shard] = part;
    } else if (held.part[shard] != part) {
      differing.insert(shard);
    }
  });
  if (!differing.empty()) {
    each([&](uint32_t shard, int rank, uint64_t part) {
      if (differing.contains(shard)) held.differing[shard][part].push_back(rank);
    });
  }
  Found found;
  for (const uint32_t tensor : targets_.TensorsByName()) {
    if (loaded_[tensor]) Judge(tensor, held, found);
  }
  if (found.names.empty()) return found.equal;
  const size_t count = found.names.size();
  found.names.resize(std::min(count, kMostNames));
  for (std::string& name : found.names) {
    if (name.size() > kMostNameBytes) name = name.substr(0, kMostNameBytes) + "...";
  }
  const std::string names = absl::StrCat(absl::StrJoin(found.names, ", "),
                                         count > kMostNames ? absl::StrCat(" and ", count - kMostNames, " more") : "");
  const std::vector<int> wrong(found.ranks.begin(), found.ranks.end());
  return MakeError(Reason::kFingerprintMismatch,
                   absl::StrCat("what the load has filled is not what was saved, in ", count,
                                count == 1 ? " tensor" : " tensors", " on ", RanksText(wrong), ": ", names),
                   {{"names", names}, {"count", absl::StrCat(count)}, {"ranks", JoinRanks(wrong)}});
}

void FingerprintCheck::Judge(uint32_t tensor, const Held& held, Found& found) const {
  const std::span<const uint32_t> shards = targets_.ShardsOf(tensor);
  uint64_t others = 0;  // of the shards whose replicas are equal
  std::vector<uint32_t> differing;
  for (const uint32_t shard : shards) {
    if (held.differing.contains(shard)) {
      differing.push_back(shard);
    } else {
      others ^= held.part[shard];
    }
  }
  const std::optional<uint64_t>& expected = expected_[tensor];
  if (differing.empty() && (!expected.has_value() || others == *expected)) {
    found.equal += expected.has_value() ? 1 : 0;
    return;
  }
  found.names.push_back(targets_.tensors()[tensor].name);
  const auto blame = [&](std::span<const uint32_t> of) {
    const std::vector<int> holders = targets_.RanksOf(of);
    found.ranks.insert(holders.begin(), holders.end());
  };
  if (differing.empty()) return blame(shards);
  for (const uint32_t& shard : differing) {
    const std::map<uint64_t, std::vector<int>>& by_part = held.differing.at(shard);
    // The right part is the one that makes the tensor whole, or else the one that more ranks have than any other.
    auto right = by_part.end();
    if (expected.has_value() && differing.size() == 1) {
      right = by_part.find(*expected ^ others);
    } else {
      right = std::ranges::max_element(by_part, {}, [](const auto& entry) { return entry.second.size(); });
      const bool tie = std::ranges::count_if(
                           by_part, [&](const auto& entry) { return entry.second.size() == right->second.size(); }) > 1;
      if (tie) right = by_part.end();
    }
    if (right == by_part.end()) {
      blame(std::span(&shard, 1));
      continue;
    }
    for (const auto& [part, ranks] : by_part) {
      if (part != right->first) found.ranks.insert(ranks.begin(), ranks.end());
    }
  }
}

}  // namespace cairn

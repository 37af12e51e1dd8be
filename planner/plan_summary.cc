#include "planner/plan_summary.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <numeric>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/process/quantity.h"
#include "mapping/report.h"

namespace cairn {
namespace {

std::string Size(uint64_t bytes) { return FormatSize(static_cast<int64_t>(std::min<uint64_t>(bytes, INT64_MAX))); }

std::string Count(size_t n, const char* what) { return absl::StrCat(n, " ", what, n == 1 ? "" : "s"); }

struct Balance {
  int rank = 0;
  uint64_t bytes = 0;
  uint64_t mean = 0;
  double ratio = 1.0;
};

Balance HeaviestOf(const std::vector<int>& ranks, const std::vector<uint64_t>& bytes) {
  const auto heaviest = std::max_element(bytes.begin(), bytes.end());
  const uint64_t total = std::accumulate(bytes.begin(), bytes.end(), uint64_t{0});
  Balance balance;
  balance.rank = ranks[static_cast<size_t>(heaviest - bytes.begin())];
  balance.bytes = *heaviest;
  balance.mean = total / bytes.size();
  if (total > 0)
    balance.ratio = static_cast<double>(*heaviest) * static_cast<double>(bytes.size()) / static_cast<double>(total);
  return balance;
}

}  // namespace

std::string SummaryOf(const SavePlan& plan, MovePolicy moves) {
  if (plan.ranks().empty()) return "no ranks\n";
  const std::vector<PlannedFileView> files = plan.Files();
  std::string text = absl::StrCat(Count(plan.ranks().size(), "rank"), " write ", Size(plan.unique_bytes()), " in ",
                                  Count(files.size(), "file"), "\n");
  const Balance balance = HeaviestOf(plan.ranks(), plan.rank_bytes());
  absl::StrAppend(&text, "heaviest: rank ", balance.rank, " with ", Size(balance.bytes),
                  absl::StrFormat(", %.3f of the mean (%s)\n", balance.ratio, Size(balance.mean)));
  // The reason why the rank is the heaviest: its largest item, and the bytes that no other rank could write.
  const PlannedItem* largest = nullptr;
  size_t items = 0;
  for (const PlannedFileView& file : files) {
    if (file.rank != balance.rank) continue;
    for (const PlannedItem& item : file.items) {
      ++items;
      if (largest == nullptr || item.item.bytes() > largest->item.bytes()) largest = &item;
    }
  }
  if (largest != nullptr) {
    const uint64_t sole = plan.SoleBytes(balance.rank);
    absl::StrAppend(&text, "  it writes ", Count(items, "item"), ", the largest is ", largest->item.name, " with ",
                    Size(largest->item.bytes()), "; ", Size(sole), " of it no other rank holds\n");
    if (balance.ratio > 1.02 && largest->item.bytes() >= balance.bytes * 98 / 100) {
      absl::StrAppend(&text, "  a shard is never split between writers: this one is larger than the mean\n");
    } else if (balance.ratio > 1.02 && moves == MovePolicy::kNever) {
      absl::StrAppend(&text, "  \"moves\": \"auto\" would let lighter ranks write some of it\n");
    }
  }
  uint64_t moved = 0;
  std::map<int, uint64_t> given;
  const std::vector<PlannedMove> list = plan.Moves();
  for (const PlannedMove& move : list) {
    moved += move.item.bytes();
    given[move.from] += move.item.bytes();
  }
  if (!list.empty()) {
    const auto most =
        std::max_element(given.begin(), given.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
    absl::StrAppend(&text, Count(list.size(), "shard"), " with ", Size(moved),
                    " move between ranks to be written; most from rank ", most->first, ", which holds ",
                    Size(most->second), " more than its share\n");
  } else {
    absl::StrAppend(&text, "no shard moves between ranks\n");
  }
  return text;
}

std::string SummaryOf(const LoadPlan& plan) {
  if (plan.ranks().empty()) return "no ranks\n";
  std::vector<uint64_t> read(plan.ranks().size());
  const auto index = [&](int rank) {
    return static_cast<size_t>(std::lower_bound(plan.ranks().begin(), plan.ranks().end(), rank) - plan.ranks().begin());
  };
  size_t files = 0;
  for (const LoadTotals::RankFile& one : plan.totals().reads) {
    read[index(one.rank)] += one.bytes;
    ++files;
  }
  uint64_t copied = 0;
  std::map<int, std::pair<size_t, uint64_t>> in, out;
  for (const LoadTotals::RankPair& pair : plan.totals().copies) {
    copied += pair.bytes;
    ++in[pair.to].first;
    in[pair.to].second += pair.bytes;
    ++out[pair.from].first;
    out[pair.from].second += pair.bytes;
  }
  std::string text =
      absl::StrCat(Count(plan.ranks().size(), "rank"), " read ", Size(plan.unique_bytes()), ", each byte once (",
                   Size(plan.unique_bytes()), " needed), in ", files, " pairs of rank and file\n");
  const Balance balance = HeaviestOf(plan.ranks(), read);
  absl::StrAppend(&text, "heaviest reader: rank ", balance.rank, " with ", Size(balance.bytes),
                  absl::StrFormat(", %.3f of the mean (%s)\n", balance.ratio, Size(balance.mean)));
  const auto idle = static_cast<size_t>(std::count(read.begin(), read.end(), uint64_t{0}));
  if (idle > 0) absl::StrAppend(&text, "  ", Count(idle, "rank"), " read nothing\n");
  const auto widest = [](const auto& ranks) {
    return std::max_element(ranks.begin(), ranks.end(),
                            [](const auto& a, const auto& b) { return a.second.first < b.second.first; });
  };
  if (copied == 0) {
    absl::StrAppend(&text, "nothing goes from rank to rank\n");
  } else {
    const auto taker = widest(in);
    const auto giver = widest(out);
    absl::StrAppend(&text, Size(copied), " go from rank to rank; rank ", taker->first, " takes from ",
                    Count(taker->second.first, "rank"), " (", Size(taker->second.second), "), rank ", giver->first,
                    " gives to ", Count(giver->second.first, "rank"), " (", Size(giver->second.second), ")\n");
  }
  if (plan.mapping_report() != nullptr) return text + aoa::FormatReport(*plan.mapping_report());
  for (const std::string& name : plan.missing()) absl::StrAppend(&text, "missing: ", name, "\n");
  for (const std::string& name : plan.unexpected()) absl::StrAppend(&text, "unexpected: ", name, "\n");
  return text;
}

}  // namespace cairn

// Chooses the ranks of a job that people are shown. A view of 100,000 ranks is more than one message may hold, and than
// anybody reads: it counts them all, and shows a page of them, or those that are worth a look.
#ifndef CAIRN_COORDINATOR_DECISION_SHOWN_RANKS_H_
#define CAIRN_COORDINATOR_DECISION_SHOWN_RANKS_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "cairn/v1/checkpoint_service.pb.h"

namespace cairn {

class ShownRanks {
 public:
  // A job of at most so many ranks is shown whole, and a page has at most so many.
  static constexpr uint32_t kPage = 1024;
  // A larger job is shown by at most so many ranks that are worth a look.
  static constexpr size_t kNoteworthy = 128;

  static ShownRanks All() { return ShownRanks(0, std::numeric_limits<int>::max()); }
  // `page`, cut to what is there of it; see GetJobRequest.page.
  static ShownRanks Page(const v1::RankPage& page) {
    const uint32_t most = page.max_ranks() == 0 ? kPage : std::min(page.max_ranks(), kPage);
    const uint32_t first = std::min<uint32_t>(page.first_rank(), 1u << 30);
    return ShownRanks(static_cast<int>(first), static_cast<int>(first + most));
  }
  // Shows the first kNoteworthy different ones of `ranks`.
  static ShownRanks Of(const std::vector<int>& ranks) {
    ShownRanks shown(0, 0);
    for (const int rank : ranks) {
      if (shown.some_.size() == kNoteworthy) break;
      const auto place = std::lower_bound(shown.some_.begin(), shown.some_.end(), rank);
      if (place == shown.some_.end() || *place != rank) shown.some_.insert(place, rank);
    }
    return shown;
  }
  static bool FitsWhole(size_t ranks) { return ranks <= kPage; }

  bool contains(int rank) const {
    return (rank >= begin_ && rank < end_) || std::binary_search(some_.begin(), some_.end(), rank);
  }
  // One past the last rank of a page.
  int end() const { return end_; }
  // Returns whether a page holds all ranks of a job.
  bool IsAllOf(int world_size) const { return begin_ == 0 && end_ >= world_size; }

 private:
  ShownRanks(int begin, int end) : begin_(begin), end_(end) {}

  int begin_;
  int end_;
  std::vector<int> some_;  // ascending
};

// The ranks of an operation that are worth a look, ascending each.
struct NoteworthyRanks {
  std::vector<int> late;
  std::vector<int> awaited;
};

// Counts the ranks of a save or load, whether they are shown or not.
class RankTally {
 public:
  void Add(v1::Phase::Value phase, uint64_t bytes_done, uint64_t bytes_total, bool late) {
    auto& [ranks, late_ranks] = counts_[static_cast<size_t>(phase)];
    ++ranks;
    late_ranks += late ? 1 : 0;
    bytes_done_ += bytes_done;
    bytes_total_ += bytes_total;
  }
  // `view`: a v1::Checkpoint or v1::Load.
  template <typename View>
  void WriteTo(View& view) const {
    for (size_t phase = 0; phase < counts_.size(); ++phase) {
      const auto [ranks, late] = counts_[phase];
      if (ranks == 0) continue;
      v1::PhaseCount& count = *view.add_phase_counts();
      count.set_phase(static_cast<v1::Phase::Value>(phase));
      count.set_ranks(ranks);
      count.set_late(late);
    }
    view.set_bytes_done(bytes_done_);
    view.set_bytes_total(bytes_total_);
  }

 private:
  std::array<std::pair<uint32_t, uint32_t>, v1::Phase::Value_ARRAYSIZE> counts_ = {};
  uint64_t bytes_done_ = 0;
  uint64_t bytes_total_ = 0;
};

}  // namespace cairn

#endif  // CAIRN_COORDINATOR_DECISION_SHOWN_RANKS_H_

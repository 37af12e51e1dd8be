// Holds a list of merges that were decided before, and says which of them a pair has yet to expect.
#ifndef CAIRN_CORPUS_BPE_MERGE_SCHEDULE_H_
#define CAIRN_CORPUS_BPE_MERGE_SCHEDULE_H_

#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "corpus/bpe/pair_table.h"

namespace cairn::corpus {

// Merge number t (its time) is done once, at all places where its pair then stands. So a pair that comes into being at
// time t waits for the first merge of that pair after t, if there is one. Immutable after the last Add(); then
// thread-safe.
class MergeSchedule {
 public:
  static constexpr uint32_t kNever = ~uint32_t{0};

  struct Step {
    uint32_t left;
    uint32_t right;
    uint32_t result;
    uint32_t next = kNever;  // the next merge of the same pair
  };

  void Add(uint32_t left, uint32_t right, uint32_t result) {
    const auto time = static_cast<uint32_t>(steps_.size());
    const auto [span, is_new] = times_.try_emplace(PairTable::Pair(left, right), Span{time, time});
    if (!is_new) {
      steps_[span->second.last].next = time;
      span->second.last = time;
    }
    steps_.push_back({left, right, result});
  }

  bool empty() const { return steps_.empty(); }
  const Step& operator[](uint32_t time) const { return steps_[time]; }

  // Returns the time of the first merge of the pair at `from` or later; kNever if there is none.
  uint32_t NextOf(uint32_t left, uint32_t right, uint32_t from) const {
    const auto it = times_.find(PairTable::Pair(left, right));
    if (it == times_.end()) return kNever;
    uint32_t time = it->second.first;
    while (time != kNever && time < from) time = steps_[time].next;
    return time;
  }

 private:
  struct Span {
    uint32_t first;
    uint32_t last;
  };

  std::vector<Step> steps_;
  absl::flat_hash_map<uint64_t, Span> times_;
};

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_BPE_MERGE_SCHEDULE_H_

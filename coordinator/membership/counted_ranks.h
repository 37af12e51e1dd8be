// Values by rank, and how many ranks have each of some marks.
#ifndef CAIRN_COORDINATOR_MEMBERSHIP_COUNTED_RANKS_H_
#define CAIRN_COORDINATOR_MEMBERSHIP_COUNTED_RANKS_H_

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "common/base/rank_table.h"

namespace cairn {

// A value is changed by Change alone, which also changes the counts: so they are always what a look at all ranks would
// find, and cost the same, however many ranks there are. `T` has an `enum Mark` that ends with kMarks, and `uint32_t
// marks() const`, one bit for each mark: a function of the value alone, 0 for T(). See RankTable for the rest. Not
// thread-safe.
template <typename T>
class CountedRanks {
 public:
  size_t size() const { return table_.size(); }
  // Makes it as large as that, unless it is larger.
  void Grow(size_t size) {
    if (table_.size() < size) table_.resize(size);
  }
  void clear() {
    table_.clear();
    counts_ = {};
  }

  const T& operator[](size_t rank) const { return table_[rank]; }
  const T& front() const { return table_.front(); }
  auto begin() const { return table_.begin(); }
  auto end() const { return table_.end(); }
  size_t NextKept(size_t rank) const { return table_.NextKept(rank); }

  // Calls `change(value)` for the rank.
  template <typename Function>
  void Change(size_t rank, Function change) {
    T& value = table_.At(rank);
    const uint32_t before = value.marks();
    change(value);
    const uint32_t after = value.marks();
    for (uint32_t other = before ^ after; other != 0; other &= other - 1) {
      const auto mark = static_cast<size_t>(std::countr_zero(other));
      (after >> mark & 1) != 0 ? ++counts_[mark] : --counts_[mark];
    }
  }
  // Calls it for each rank that has memory here.
  template <typename Function>
  void ChangeKept(Function change) {
    for (size_t rank = NextKept(0); rank < size(); rank = NextKept(rank + 1)) Change(rank, change);
  }

  // Returns how many ranks have the mark.
  size_t count(typename T::Mark mark) const { return counts_[static_cast<size_t>(mark)]; }
  bool all(typename T::Mark mark) const { return count(mark) == size(); }

 private:
  RankTable<T> table_;
  std::array<size_t, static_cast<size_t>(T::kMarks)> counts_ = {};
};

}  // namespace cairn

#endif  // CAIRN_COORDINATOR_MEMBERSHIP_COUNTED_RANKS_H_

// A table of values by rank. The world's size is untrusted, so only ranks whose values were changed take memory.
#ifndef CAIRN_COMMON_BASE_RANK_TABLE_H_
#define CAIRN_COMMON_BASE_RANK_TABLE_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <iterator>
#include <memory>
#include <vector>

namespace cairn {

// A rank whose value was never changed has T(). Memory is allocated for a page of kPageRanks ranks when one of them is
// first changed. References to values stay valid until the table is cleared, moved, or resized below their ranks. Not
// thread-safe.
template <typename T>
class RankTable {
 public:
  static constexpr size_t kPageRanks = 64;

  // The number of ranks. More ranks take no memory. Fewer drop the values of ranks beyond.
  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  void resize(size_t size) {
    size_ = size;
    const size_t pages = (size + kPageRanks - 1) / kPageRanks;
    if (pages < pages_.size()) pages_.resize(pages);
    if (pages > pages_.size() || pages_.empty() || pages_.back() == nullptr) return;
    for (size_t rank = size; rank < pages * kPageRanks; ++rank) (*pages_.back())[rank % kPageRanks] = T();
  }
  void clear() {
    size_ = 0;
    pages_.clear();
  }

  // Returns a rank's value; T() for a rank beyond the size.
  const T& operator[](size_t rank) const {
    static const T kUnchanged{};
    const Page* page = PageOf(rank);
    return page == nullptr || rank >= size_ ? kUnchanged : (*page)[rank % kPageRanks];
  }
  const T& front() const { return (*this)[0]; }
  // Returns a rank's value so that it can be changed. Enlarges the table if the rank is beyond the size.
  T& At(size_t rank) {
    size_ = std::max(size_, rank + 1);
    const size_t page = rank / kPageRanks;
    if (pages_.size() <= page) pages_.resize(page + 1);
    if (pages_[page] == nullptr) pages_[page] = std::make_unique<Page>();
    return (*pages_[page])[rank % kPageRanks];
  }

  // Iterates over the values of all ranks in order, unchanged ones too.
  class Iterator {
   public:
    Iterator(const RankTable& table, size_t rank) : table_(&table), rank_(rank) {}
    const T& operator*() const { return (*table_)[rank_]; }
    Iterator& operator++() {
      ++rank_;
      return *this;
    }
    bool operator==(const Iterator& other) const { return rank_ == other.rank_; }

    using iterator_category = std::input_iterator_tag;
    using value_type = T;
    using difference_type = std::ptrdiff_t;
    using pointer = const T*;
    using reference = const T&;

   private:
    const RankTable* table_;
    size_t rank_;
  };
  Iterator begin() const { return {*this, 0}; }
  Iterator end() const { return {*this, size_}; }

  // Returns the first rank at or after `rank` that has memory here; size() if there is none.
  size_t NextKept(size_t rank) const {
    while (rank < size_ && PageOf(rank) == nullptr) rank = (rank / kPageRanks + 1) * kPageRanks;
    return std::min(rank, size_);
  }
  // Calls `change(value)` for each rank that has memory here.
  template <typename Function>
  void ChangeKept(Function change) {
    for (size_t rank = NextKept(0); rank < size_; rank = NextKept(rank + 1)) change(At(rank));
  }
  // Returns the number of ranks that have memory here.
  size_t kept() const {
    return kPageRanks * static_cast<size_t>(std::count_if(pages_.begin(), pages_.end(),
                                                          [](const auto& page) { return page != nullptr; }));
  }

 private:
  using Page = std::array<T, kPageRanks>;

  const Page* PageOf(size_t rank) const {
    const size_t page = rank / kPageRanks;
    return page < pages_.size() ? pages_[page].get() : nullptr;
  }

  std::vector<std::unique_ptr<Page>> pages_;  // null: all its ranks are unchanged
  size_t size_ = 0;
};

}  // namespace cairn

#endif  // CAIRN_COMMON_BASE_RANK_TABLE_H_

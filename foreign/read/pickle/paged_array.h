// An array that grows without moving what it holds.
#ifndef CAIRN_FOREIGN_READ_PICKLE_PAGED_ARRAY_H_
#define CAIRN_FOREIGN_READ_PICKLE_PAGED_ARRAY_H_

#include <cstddef>
#include <memory>
#include <new>
#include <type_traits>
#include <utility>
#include <vector>

namespace cairn {

// A std::vector holds its elements twice while it grows, which is too much for hundreds of megabytes. This array takes
// one page after the other, so it never has more than one page of unused memory. Its first pages are small, because
// most pickles are, and a directory has a great many of them. Later ones are large, so that their memory goes back to
// the kernel when the array ends.
template <typename T>
class PagedArray {
  // Elements are neither made before they are set nor destroyed.
  static_assert(std::is_trivially_copyable_v<T> && std::is_trivially_destructible_v<T>);

 public:
  size_t size() const { return size_; }
  void push_back(const T& value) {
    if (size_ == capacity_) AddPage();
    ::new (static_cast<void*>(SlotOf(size_))) T(value);
    ++size_;
  }
  T& operator[](size_t i) { return *std::launder(reinterpret_cast<T*>(SlotOf(i))); }
  const T& operator[](size_t i) const { return *std::launder(reinterpret_cast<const T*>(SlotOf(i))); }

 private:
  struct Slot {
    alignas(T) std::byte bytes[sizeof(T)];
  };
  using Page = std::unique_ptr<Slot[]>;
  static constexpr size_t kSmallPage = size_t{1} << 10;
  static constexpr size_t kLargePage = size_t{1} << 18;  // as many elements lie in small pages

  Slot* SlotOf(size_t i) const {
    return i < kLargePage ? &small_[i / kSmallPage][i % kSmallPage] : &large_[i / kLargePage - 1][i % kLargePage];
  }

  void AddPage() {
    const bool large = capacity_ >= kLargePage;
    const size_t elements = large ? kLargePage : kSmallPage;
    Page page = std::make_unique_for_overwrite<Slot[]>(elements);
    (large ? large_ : small_).push_back(std::move(page));
    capacity_ += elements;
  }

  size_t size_ = 0;
  size_t capacity_ = 0;
  std::vector<Page> small_;
  std::vector<Page> large_;
};

}  // namespace cairn

#endif  // CAIRN_FOREIGN_READ_PICKLE_PAGED_ARRAY_H_

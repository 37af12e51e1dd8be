// An array that grows without moving what it holds.
#ifndef CAIRN_IMPORT_PAGED_ARRAY_H_
#define CAIRN_IMPORT_PAGED_ARRAY_H_

#include <cstddef>
#include <memory>
#include <vector>

namespace cairn {

// A std::vector holds its elements twice while it grows, which hundreds of megabytes cannot afford. This array takes
// one page after the other, so it never has more than one page too many. Pages are small, because most pickles are, and
// a directory has a great many of them.
template <typename T>
class PagedArray {
 public:
  size_t size() const { return size_; }
  void push_back(const T& value) {
    if (size_ % kPage == 0) pages_.push_back(std::make_unique_for_overwrite<T[]>(kPage));
    (*this)[size_++] = value;
  }
  T& operator[](size_t i) { return pages_[i / kPage][i % kPage]; }
  const T& operator[](size_t i) const { return pages_[i / kPage][i % kPage]; }

 private:
  static constexpr size_t kPage = size_t{1} << 10;

  size_t size_ = 0;
  std::vector<std::unique_ptr<T[]>> pages_;
};

}  // namespace cairn

#endif  // CAIRN_IMPORT_PAGED_ARRAY_H_

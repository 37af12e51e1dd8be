// Large arrays that are touched at random: on huge pages, so that the processor finds their addresses in its TLB.
#ifndef CAIRN_CORPUS_BPE_HUGE_PAGES_H_
#define CAIRN_CORPUS_BPE_HUGE_PAGES_H_

#include <sys/mman.h>

#include <cstddef>
#include <new>
#include <vector>

namespace cairn::corpus {

// A standard allocator. Arrays of a huge page (2 MiB) and more begin at one and ask the kernel for huge pages; where it
// has none they are ordinary memory. Thread-safe.
template <typename T>
class HugePageAllocator {
 public:
  using value_type = T;

  HugePageAllocator() = default;
  template <typename U>
  HugePageAllocator(const HugePageAllocator<U>&) {}  // NOLINT(google-explicit-constructor): allocators convert

  T* allocate(size_t count) {
    const size_t bytes = count * sizeof(T);
    if (bytes < kHugePage) return static_cast<T*>(::operator new(bytes));
    const size_t whole = (bytes + kHugePage - 1) / kHugePage * kHugePage;
    void* const memory = ::operator new(whole, std::align_val_t(kHugePage));
    madvise(memory, whole, MADV_HUGEPAGE);
    return static_cast<T*>(memory);
  }
  void deallocate(T* memory, size_t count) {
    if (count * sizeof(T) < kHugePage) return ::operator delete(memory);
    ::operator delete(memory, std::align_val_t(kHugePage));
  }

  template <typename U>
  bool operator==(const HugePageAllocator<U>&) const {
    return true;
  }

 private:
  static constexpr size_t kHugePage = size_t{2} << 20;
};

template <typename T>
using HugeVector = std::vector<T, HugePageAllocator<T>>;

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_BPE_HUGE_PAGES_H_

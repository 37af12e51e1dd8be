// Puts large arrays that are touched at random on huge pages, so that the processor finds their addresses in its TLB.
#ifndef CAIRN_CORPUS_BPE_HUGE_PAGES_H_
#define CAIRN_CORPUS_BPE_HUGE_PAGES_H_

#include <cstddef>
#include <new>
#include <vector>

namespace cairn::corpus {

inline constexpr size_t kHugePageBytes = size_t{2} << 20;

// Returns memory that begins at a huge page, and asks the kernel for huge pages. Where the kernel has none it is
// ordinary memory. `bytes` must be a multiple of kHugePageBytes. The content is undefined. Throws std::bad_alloc.
// Thread-safe.
void* AllocateHugePages(size_t bytes);
void FreeHugePages(void* memory, size_t bytes);

// While an object of this class lives, huge pages that are freed are kept for the next allocations. The kernel clears
// every page that it hands out, which costs more than most of what is then done with the page (and ten times more on a
// virtual machine whose host takes free memory back).
class HugePageReuse {
 public:
  HugePageReuse();
  ~HugePageReuse();
  HugePageReuse(const HugePageReuse&) = delete;
  HugePageReuse& operator=(const HugePageReuse&) = delete;
};

// A standard allocator that puts arrays of at least one huge page on huge pages. Thread-safe.
template <typename T>
class HugePageAllocator {
 public:
  using value_type = T;

  HugePageAllocator() = default;
  template <typename U>
  HugePageAllocator(const HugePageAllocator<U>&) {}  // NOLINT(google-explicit-constructor): allocators convert

  T* allocate(size_t count) {
    const size_t bytes = count * sizeof(T);
    return static_cast<T*>(bytes < kHugePageBytes ? ::operator new(bytes, kAlign) : AllocateHugePages(Whole(bytes)));
  }
  void deallocate(T* memory, size_t count) {
    const size_t bytes = count * sizeof(T);
    if (bytes < kHugePageBytes) return ::operator delete(memory, kAlign);
    FreeHugePages(memory, Whole(bytes));
  }

  template <typename U>
  bool operator==(const HugePageAllocator<U>&) const {
    return true;
  }

 private:
  static constexpr std::align_val_t kAlign{alignof(T)};

  static size_t Whole(size_t bytes) { return (bytes + kHugePageBytes - 1) / kHugePageBytes * kHugePageBytes; }
};

template <typename T>
using HugeVector = std::vector<T, HugePageAllocator<T>>;

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_BPE_HUGE_PAGES_H_

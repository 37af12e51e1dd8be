// Page-aligned memory from the kernel, as O_DIRECT needs it. Freed memory returns to the kernel at once, so a memory
// budget is exact.
#ifndef CAIRN_COMMON_RESOURCES_ALIGNED_BUFFER_H_
#define CAIRN_COMMON_RESOURCES_ALIGNED_BUFFER_H_

#include <cstddef>
#include <utility>

namespace cairn {

// Offsets, sizes and addresses of direct I/O must be multiples of this many bytes.
inline constexpr size_t kIoAlignment = 4096;

constexpr size_t RoundUpToIo(size_t bytes) { return (bytes + kIoAlignment - 1) / kIoAlignment * kIoAlignment; }

// A buffer of this size or more begins at a multiple of it, so that the kernel can give it huge pages. With small,
// scattered pages the kernel splits a direct transfer into many disk requests of at most 1 MiB.
inline constexpr size_t kHugePageBytes = size_t{2} << 20;

// Holds at least `size` bytes, which are zero at first. A page (which may be a huge page) takes memory when it is first
// touched. Can be moved, not copied. The constructor throws std::bad_alloc, which WithMemory catches.
class AlignedBuffer {
 public:
  AlignedBuffer() = default;
  explicit AlignedBuffer(size_t size);
  AlignedBuffer(AlignedBuffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  AlignedBuffer& operator=(AlignedBuffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }
  ~AlignedBuffer();

  char* data() { return data_; }
  const char* data() const { return data_; }
  size_t size() const { return size_; }

 private:
  char* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace cairn

#endif  // CAIRN_COMMON_RESOURCES_ALIGNED_BUFFER_H_

// Page-aligned memory that comes straight from the kernel. O_DIRECT needs it, and it returns to the kernel when it is
// freed, so that a memory budget can be kept to the page.
#ifndef CAIRN_COMMON_RESOURCES_ALIGNED_BUFFER_H_
#define CAIRN_COMMON_RESOURCES_ALIGNED_BUFFER_H_

#include <cstddef>
#include <utility>

namespace cairn {

// Offsets, sizes and addresses of direct I/O are multiples of this many bytes.
inline constexpr size_t kIoAlignment = 4096;

constexpr size_t RoundUpToIo(size_t bytes) { return (bytes + kIoAlignment - 1) / kIoAlignment * kIoAlignment; }

// A buffer of this size or more begins at a multiple of it. The kernel gives it such pages where it has them, because
// it cuts a direct transfer of scattered small pages into many requests to the disk, of 1 MiB at most.
inline constexpr size_t kHugePageBytes = size_t{2} << 20;

// Holds at least `size` bytes, zeroed at first; a page, which may be a huge one, takes memory when it is first touched.
// It can be moved, not copied. Throws std::bad_alloc as `new` does, which WithMemory catches.
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

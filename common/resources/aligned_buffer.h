// Page-aligned memory that comes straight from the kernel. O_DIRECT needs it, and it returns to the kernel when it is
// freed, so that a memory budget can be kept to the page.
#ifndef CAIRN_COMMON_RESOURCES_ALIGNED_BUFFER_H_
#define CAIRN_COMMON_RESOURCES_ALIGNED_BUFFER_H_

#include <sys/mman.h>

#include <cstddef>
#include <new>
#include <utility>

namespace cairn {

// Offsets, sizes and addresses of direct I/O are multiples of this many bytes.
inline constexpr size_t kIoAlignment = 4096;

constexpr size_t RoundUpToIo(size_t bytes) { return (bytes + kIoAlignment - 1) / kIoAlignment * kIoAlignment; }

// Holds at least `size` bytes, zeroed at first; a page takes memory when it is first touched. It can be moved, not
// copied. Throws std::bad_alloc as `new` does, which WithMemory catches.
class AlignedBuffer {
 public:
  AlignedBuffer() = default;
  explicit AlignedBuffer(size_t size) : size_(RoundUpToIo(size)) {
    if (size == 0) return;
    if (size_ < size) throw std::bad_alloc();  // the rounding wrapped around
    void* memory = mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    data_ = static_cast<char*>(memory);
  }
  AlignedBuffer(AlignedBuffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  AlignedBuffer& operator=(AlignedBuffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }
  ~AlignedBuffer() {
    if (data_ != nullptr) munmap(data_, size_);
  }

  char* data() { return data_; }
  const char* data() const { return data_; }
  size_t size() const { return size_; }

 private:
  char* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace cairn

#endif  // CAIRN_COMMON_RESOURCES_ALIGNED_BUFFER_H_

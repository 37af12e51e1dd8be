#include "common/resources/aligned_buffer.h"

#include <sys/mman.h>

#include <cstdint>
#include <new>

#include "common/resources/page_size.h"

namespace cairn {

AlignedBuffer::AlignedBuffer(size_t size) : size_(RoundUpToIo(size)) {
  if (size == 0) return;
  // To find an aligned address, this maps more than the size, and unmaps the rest before and behind the buffer.
  const size_t mapped = RoundUpToPages(size_);
  const size_t spare = size_ >= kHugePageBytes ? kHugePageBytes : 0, asked = mapped + spare;
  if (size_ < size || mapped < size_ || asked < mapped) throw std::bad_alloc();  // a sum has wrapped around
  void* memory = mmap(nullptr, asked, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  data_ = static_cast<char*>(memory);
  if (spare == 0) return;
  const size_t before = -reinterpret_cast<uintptr_t>(data_) % kHugePageBytes;
  if (before > 0) munmap(data_, before);
  data_ += before;
  if (before < spare) munmap(data_ + mapped, spare - before);
  madvise(data_, size_, MADV_HUGEPAGE);  // optional: a kernel without huge pages refuses it
}

AlignedBuffer::~AlignedBuffer() {
  if (data_ != nullptr) munmap(data_, RoundUpToPages(size_));
}

}  // namespace cairn

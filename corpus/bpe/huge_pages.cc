#include "corpus/bpe/huge_pages.h"

#include <sys/mman.h>

#include <cstdint>

#include "common/base/mutex.h"

namespace cairn::corpus {
namespace {

struct Block {
  char* memory;
  size_t bytes;
};

// The blocks that HugePageReuse keeps.
class Kept {
 public:
  void AddUser() {
    MutexLock lock(mutex_);
    ++users_;
  }

  void RemoveUser() {
    MutexLock lock(mutex_);
    if (--users_ > 0) return;
    for (const Block& block : blocks_) munmap(block.memory, block.bytes);
    blocks_.clear();
    blocks_.shrink_to_fit();
  }

  // Returns the smallest block that is large enough, cut to size; null if there is none.
  void* Take(size_t bytes) {
    MutexLock lock(mutex_);
    Block* best = nullptr;
    for (Block& block : blocks_) {
      if (block.bytes >= bytes && (best == nullptr || block.bytes < best->bytes)) best = &block;
    }
    if (best == nullptr) return nullptr;
    best->bytes -= bytes;
    char* const memory = best->memory + best->bytes;
    if (best->bytes == 0) {
      *best = blocks_.back();
      blocks_.pop_back();
    }
    return memory;
  }

  // Returns whether the block is kept.
  bool Give(void* memory, size_t bytes) {
    MutexLock lock(mutex_);
    if (users_ == 0) return false;
    blocks_.push_back({static_cast<char*>(memory), bytes});
    return true;
  }

 private:
  Mutex mutex_;
  int users_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<Block> blocks_ ABSL_GUARDED_BY(mutex_);
};

Kept& KeptPages() {
  static Kept* const kept = new Kept;  // never destroyed, because arrays may be freed late
  return *kept;
}

}  // namespace

HugePageReuse::HugePageReuse() { KeptPages().AddUser(); }
HugePageReuse::~HugePageReuse() { KeptPages().RemoveUser(); }

void* AllocateHugePages(size_t bytes) {
  if (void* const kept = KeptPages().Take(bytes)) return kept;
  const size_t mapped = bytes + kHugePageBytes;
  void* const memory = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  // The memory before the first huge page and behind the last one goes back to the kernel.
  char* const begin = static_cast<char*>(memory);
  const size_t before = -reinterpret_cast<uintptr_t>(begin) % kHugePageBytes;
  if (before > 0) munmap(begin, before);
  munmap(begin + before + bytes, mapped - before - bytes);
  madvise(begin + before, bytes, MADV_HUGEPAGE);
  return begin + before;
}

void FreeHugePages(void* memory, size_t bytes) {
  if (!KeptPages().Give(memory, bytes)) munmap(memory, bytes);
}

}  // namespace cairn::corpus

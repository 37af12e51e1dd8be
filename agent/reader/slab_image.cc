#include "agent/reader/slab_image.h"

#include <cstring>

namespace cairn {

bool SlabImage::Copy(uint64_t offset, uint64_t bytes, char* to) {
  const char* from = nullptr;
  {
    MutexLock lock(mutex_);
    if (slab_ == nullptr || offset > slab_->bytes() || bytes > slab_->bytes() - offset) return false;
    from = slab_->data() + offset;
    ++copying_;
  }
  std::memcpy(to, from, bytes);
  MutexLock lock(mutex_);
  if (--copying_ == 0) changed_.NotifyAll();
  return true;
}

void SlabImage::GiveUp() {
  std::shared_ptr<SharedMemory> slab;  // released after the lock
  MutexLock lock(mutex_);
  slab.swap(slab_);
  while (copying_ > 0) changed_.Wait(mutex_);
}

}  // namespace cairn

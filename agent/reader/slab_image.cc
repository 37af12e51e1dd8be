#include "agent/reader/slab_image.h"

#include <cstring>

#include "common/file/open_again.h"
#include "common/status/reason.h"
#include "common/status/status.h"

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

absl::StatusOr<UniqueFd> SlabImage::Share() {
  std::shared_ptr<SharedMemory> slab;
  {
    MutexLock lock(mutex_);
    slab = slab_;
  }
  if (slab == nullptr) return MakeError(Reason::kStorageError, "the staging buffer was given to another save");
  return OpenAgainToRead(slab->fd());
}

void SlabImage::GiveUp() {
  std::shared_ptr<SharedMemory> slab;  // released after the lock
  MutexLock lock(mutex_);
  slab.swap(slab_);
  while (copying_ > 0) changed_.Wait(mutex_);
}

}  // namespace cairn

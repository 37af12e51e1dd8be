#include "agent/writer/staging_progress.h"

namespace cairn {
namespace {

// Nobody wakes who waits for a part of the slab. A chunk takes longer to write than this.
constexpr absl::Duration kLook = absl::Milliseconds(1);
// Whoever waits for all looks this often whether it is to stop.
constexpr absl::Duration kLongLook = absl::Milliseconds(20);

}  // namespace

void StagingProgress::End(std::vector<uint64_t> object_bytes) {
  MutexLock lock(mutex_);
  if (ended_) return;
  object_bytes_ = std::move(object_bytes);
  ended_ = true;
  changed_.NotifyAll();
}

bool StagingProgress::Await(uint64_t end) {
  const auto staged = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return ended_ || (end != kAll && staged_bytes_() >= end);
  };
  MutexLock lock(mutex_);
  if (staged()) return true;
  changed_.WaitFor(mutex_, end == kAll ? kLongLook : kLook);
  return staged();
}

}  // namespace cairn

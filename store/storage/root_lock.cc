#include "store/storage/root_lock.h"

#include <utility>

#include "common/status/reason.h"

namespace cairn {

void RootLock::OnLost(std::function<void(const absl::Status& lost)> on_lost) {
  MutexLock lock(on_lost_mutex_);
  on_lost_ = std::move(on_lost);
}

absl::Status RootLock::Check() const {
  const absl::Status status = Look();
  MutexLock lock(on_lost_mutex_);
  if (on_lost_ && HasReason(status, Reason::kRootInUse)) on_lost_(status);
  return status;
}

}  // namespace cairn

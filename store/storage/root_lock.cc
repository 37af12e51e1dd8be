#include "store/storage/root_lock.h"

#include "common/status/reason.h"

namespace cairn {

absl::Status RootLock::Check() const {
  const absl::Status status = Look();
  if (on_lost_ && HasReason(status, Reason::kRootInUse)) on_lost_(status);
  return status;
}

}  // namespace cairn

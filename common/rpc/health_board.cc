#include "common/rpc/health_board.h"

namespace cairn {

void HealthBoard::Set(std::string_view service, bool serving) {
  MutexLock lock(mutex_);
  serving_.insert_or_assign(std::string(service), serving);
}

void HealthBoard::SetAll(bool serving) {
  MutexLock lock(mutex_);
  for (auto& [service, serves] : serving_) serves = serving;
}

std::optional<bool> HealthBoard::Of(std::string_view service) const {
  MutexLock lock(mutex_);
  const auto found = serving_.find(service);
  return found == serving_.end() ? std::nullopt : std::optional(found->second);
}

}  // namespace cairn

// The health of a process (grpc.health.v1): one answer for each name of a service.
#ifndef CAIRN_COMMON_RPC_HEALTH_BOARD_H_
#define CAIRN_COMMON_RPC_HEALTH_BOARD_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "common/base/mutex.h"

namespace cairn {

// Thread-safe.
class HealthBoard {
 public:
  // At first it has one entry: "", the process as a whole, which serves.
  HealthBoard() { serving_[""] = true; }

  void Set(std::string_view service, bool serving);
  // Sets all services that have an entry.
  void SetAll(bool serving);
  // Returns nothing if there is no such service.
  std::optional<bool> Of(std::string_view service) const;

 private:
  mutable Mutex mutex_;
  std::map<std::string, bool, std::less<>> serving_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cairn

#endif  // CAIRN_COMMON_RPC_HEALTH_BOARD_H_

// What a process says of its health to whoever asks (grpc.health.v1), one answer for each name of a service.
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
  // The process as a whole, whose name is "", serves at first.
  HealthBoard() { serving_[""] = true; }

  void Set(std::string_view service, bool serving);
  // Sets what is known so far.
  void SetAll(bool serving);
  // Nothing: there is no such service.
  std::optional<bool> Of(std::string_view service) const;

 private:
  mutable Mutex mutex_;
  std::map<std::string, bool, std::less<>> serving_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cairn

#endif  // CAIRN_COMMON_RPC_HEALTH_BOARD_H_

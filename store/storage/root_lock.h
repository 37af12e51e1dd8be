// Answers what those who write below the root ask about it.
#ifndef CAIRN_STORE_ROOT_ROOT_HOLD_H_
#define CAIRN_STORE_ROOT_ROOT_HOLD_H_

#include <functional>

#include "absl/status/status.h"

namespace cairn {

struct RootHold {
  // Looks whether this coordinator still holds the root.
  std::function<absl::Status()> held = [] { return absl::OkStatus(); };
  // Makes the root one that coordinators of earlier versions refuse. Durable when it returns; idempotent.
  std::function<absl::Status()> raise_format = [] { return absl::OkStatus(); };
};

}  // namespace cairn

#endif  // CAIRN_STORE_ROOT_ROOT_HOLD_H_

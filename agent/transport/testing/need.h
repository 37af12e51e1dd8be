// Ends a test's process where it cannot go on.
#ifndef CAIRN_AGENT_TRANSPORT_TESTING_NEED_H_
#define CAIRN_AGENT_TRANSPORT_TESTING_NEED_H_

#include <cstdio>
#include <cstdlib>
#include <utility>

#include "absl/status/statusor.h"

namespace cairn::testing {

// Returns what a test cannot go on without, or ends it.
template <typename Value>
Value Need(absl::StatusOr<Value> made) {
  if (made.ok()) return *std::move(made);
  std::fprintf(stderr, "%s\n", made.status().ToString().c_str());
  std::abort();
}

}  // namespace cairn::testing

#endif  // CAIRN_AGENT_TRANSPORT_TESTING_NEED_H_

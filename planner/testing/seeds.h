// Lets people choose how many random cases a test takes, and the first one.
#ifndef CAIRN_PLANNER_TESTING_SEEDS_H_
#define CAIRN_PLANNER_TESTING_SEEDS_H_

#include <cstdint>
#include <cstdlib>

namespace cairn::testing {

// The number that the environment variable has, or `otherwise`.
inline uint64_t FromEnvironment(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

}  // namespace cairn::testing

#endif  // CAIRN_PLANNER_TESTING_SEEDS_H_

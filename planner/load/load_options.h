// What a caller may choose of a load's plan.
#ifndef CAIRN_PLANNER_LOAD_LOAD_OPTIONS_H_
#define CAIRN_PLANNER_LOAD_LOAD_OPTIONS_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "mapping/mapping.h"

namespace cairn {

struct LoadOptions {
  // Largest read buffer of one round; an agent holds two. At least 2 MiB.
  uint64_t round_bytes = uint64_t{64} << 20;
  // In-memory reshard: the rank that a file names as its writer is the only one that can read it, and its memory is the
  // buffer of the only round: buffer offsets count from its begin, where its files lie one after the other, padded to
  // 4096 bytes each.
  bool owners_read = false;
  // What the targets' tensors are made of; null: of those of the same names.
  std::shared_ptr<const aoa::Config> mapping;
  size_t max_faults = 64;
};

}  // namespace cairn

#endif  // CAIRN_PLANNER_LOAD_LOAD_OPTIONS_H_

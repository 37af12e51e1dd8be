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
  // Set for an in-memory reshard. Only the rank that a file names as its writer can read the file, and the memory of
  // that rank is the buffer of the only round. Buffer offsets count from the begin of this memory, in which the rank's
  // files lie one after the other, each padded to 4096 bytes.
  bool owners_read = false;
  // Says what the targets' tensors are made of. If it is null, each is made of the tensor of the same name.
  std::shared_ptr<const aoa::Config> mapping;
  size_t max_faults = 64;
};

}  // namespace cairn

#endif  // CAIRN_PLANNER_LOAD_LOAD_OPTIONS_H_

// The options of a load's plan.
#ifndef CAIRN_PLANNER_LOAD_LOAD_OPTIONS_H_
#define CAIRN_PLANNER_LOAD_LOAD_OPTIONS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/format/stored_item.h"
#include "mapping/mapping.h"

namespace cairn {

// A round holds at least two blocks that have a checksum.
inline constexpr uint64_t kMinRoundBytes = 2 * kChecksumBlockBytes;

struct LoadOptions {
  // The size in bytes of the largest read buffer of one round, at least kMinRoundBytes. An agent holds two such
  // buffers.
  uint64_t round_bytes = uint64_t{64} << 20;
  // Set for an in-memory reshard. Then only the rank that a file names as its writer can read the file, in one round,
  // and its own memory is the buffer of that round. Buffer offsets count from the begin of this memory, in which the
  // rank's files lie one after the other, each padded to 4096 bytes.
  bool owners_read = false;
  // The ranks, ascending, whose agents still have in memory the files that they wrote of this checkpoint. Each of them
  // reads these files, also for other ranks. Must be empty for an in-memory reshard and for an import.
  std::vector<int> keepers;
  // The full name of the directory of the job in which the files are, if they are not below the root: in its mirror. It
  // must be empty for an in-memory reshard and for an import.
  std::string directory;
  // Says from which stored tensors the targets' tensors are made. Null: each from the stored tensor of the same name.
  std::shared_ptr<const aoa::Config> mapping;
  // The plan can compare what the ranks hold after the load (LoadPlan::fingerprint_check). The source must have
  // summaries then. It does not change the plan.
  bool verify_fingerprints = false;
};

}  // namespace cairn

#endif  // CAIRN_PLANNER_LOAD_LOAD_OPTIONS_H_

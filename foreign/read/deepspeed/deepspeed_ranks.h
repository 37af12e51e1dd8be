// Compares what the ranks of a training have written: files of several saves, or of several runs, must not be mixed.
#ifndef CAIRN_FOREIGN_READ_DEEPSPEED_DEEPSPEED_RANKS_H_
#define CAIRN_FOREIGN_READ_DEEPSPEED_DEEPSPEED_RANKS_H_

#include <cstddef>
#include <vector>

#include "absl/status/status.h"
#include "foreign/read/deepspeed/deepspeed_slices.h"

namespace cairn {

// Checks that all files are of one step and of one stage of ZeRO, and that the optimizers of ranks that share weights
// keep states of the same keys. `slices` is the number of slices into which the model is cut; the parts of a pipeline
// stage follow one another. DATA_LOSS (BAD_FOREIGN_FILE): two files differ; both are named.
absl::Status CheckRanks(const std::vector<DeepSpeedPart>& parts, size_t slices);

}  // namespace cairn

#endif  // CAIRN_FOREIGN_READ_DEEPSPEED_DEEPSPEED_RANKS_H_

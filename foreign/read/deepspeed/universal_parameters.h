// The files that a universal checkpoint of DeepSpeed has of its parameters.
//
// Source: deepspeed/checkpoint/ds_to_universal.py of DeepSpeed 0.19.
#ifndef CAIRN_FOREIGN_READ_DEEPSPEED_UNIVERSAL_PARAMETERS_H_
#define CAIRN_FOREIGN_READ_DEEPSPEED_UNIVERSAL_PARAMETERS_H_

#include <string>

#include "absl/status/status.h"
#include "foreign/read/deepspeed/deepspeed_files.h"
#include "foreign/read/deepspeed/deepspeed_parts.h"

namespace cairn {

// What a path says: "zero/WEIGHT/KEY.pt", or "zero/KEY.pt" for all weights.
struct UniversalPath {
  std::string weight;  // empty: all weights
  std::string key;     // "fp32" for the weight itself, else of the optimizer's state
};
UniversalPath ParseUniversalPath(const std::string& path);

// Checks that each weight that the model's files name as trained is there, with all that the checkpoint has of any of
// them, and has the shape that they say. Of a weight that tensor parallelism had cut they do not say the whole shape,
// and of a model with experts they say nothing that could be compared. DATA_LOSS (FILE_MISSING, BAD_FOREIGN_FILE).
absl::Status CheckUniversalParameters(const DeepSpeedFiles& names, const DeepSpeedParts& read);

}  // namespace cairn

#endif  // CAIRN_FOREIGN_READ_DEEPSPEED_UNIVERSAL_PARAMETERS_H_

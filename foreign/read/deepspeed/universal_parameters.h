// The files of the parameters of a universal checkpoint of DeepSpeed.
//
// Source: deepspeed/checkpoint/ds_to_universal.py of DeepSpeed 0.19.
#ifndef CAIRN_FOREIGN_READ_DEEPSPEED_UNIVERSAL_PARAMETERS_H_
#define CAIRN_FOREIGN_READ_DEEPSPEED_UNIVERSAL_PARAMETERS_H_

#include <string>

#include "absl/status/status.h"
#include "foreign/read/deepspeed/deepspeed_files.h"
#include "foreign/read/deepspeed/deepspeed_parts.h"

namespace cairn {

// The parts of a path: "zero/WEIGHT/KEY.pt", or "zero/KEY.pt" for a state of all weights.
struct UniversalPath {
  std::string weight;  // empty: all weights
  std::string key;     // "fp32" for the weight itself, else the key of an optimizer state
};
UniversalPath ParseUniversalPath(const std::string& path);

// Checks that the checkpoint has each weight that the model's files name as trained, with the shape that they give and
// with the same keys as all other weights. The shape is not checked if tensor parallelism has cut the weight, because
// the files do not give the whole shape then. Nothing is checked for a model with experts. DATA_LOSS (FILE_MISSING,
// BAD_FOREIGN_FILE).
absl::Status CheckUniversalParameters(const DeepSpeedFiles& names, const DeepSpeedParts& read);

}  // namespace cairn

#endif  // CAIRN_FOREIGN_READ_DEEPSPEED_UNIVERSAL_PARAMETERS_H_

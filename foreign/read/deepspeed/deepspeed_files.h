// Knows the files of a DeepSpeed checkpoint by their names.
//
// Source: deepspeed/runtime/engine.py and deepspeed/checkpoint/constants.py of DeepSpeed 0.19.
#ifndef CAIRN_FOREIGN_READ_DEEPSPEED_DEEPSPEED_FILES_H_
#define CAIRN_FOREIGN_READ_DEEPSPEED_DEEPSPEED_FILES_H_

#include <compare>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace cairn {

// Names below the checkpoint's directory.
struct DeepSpeedFiles {
  // What one rank of tensor and pipeline parallelism has of the model; DeepSpeed calls its number "mp_rank". Ranks that
  // have copies of it share its states.
  struct Part {
    std::vector<std::string> models;      // one; or one of each rank, by rank, as stage 3 writes them
    std::vector<std::string> optimizers;  // of each rank, by rank
  };
  std::vector<Part> parts;  // by number; one if the model is not cut
  // What the stages of a pipeline write of the layers of the model, sorted.
  struct Layer {
    uint32_t index = 0;  // of the layer, in the whole model
    uint32_t slice = 0;  // which one of those that tensor parallelism has made of it
    std::string name;
    auto operator<=>(const Layer&) const = default;
  };
  std::vector<Layer> layers;
  // A universal checkpoint has these, sorted: "zero/WEIGHT/KEY.pt" and "zero/KEY.pt". DeepSpeedFilesAmong leaves it
  // empty. Of its parts only the models are given, if all have them, and no layers.
  std::vector<std::string> parameters;
  bool is_universal = false;
};

// Returns true if a file of this name makes its directory a checkpoint of DeepSpeed.
bool IsDeepSpeedName(const std::string& name);

// Finds the files of a checkpoint among the names in its directory, without those below "zero". `directory` is for
// errors. DATA_LOSS (FILE_MISSING): that of a rank or of a part is missing. DATA_LOSS (BAD_FOREIGN_FILE): they are of
// several saves. UNIMPLEMENTED (UNSUPPORTED): they hold a model with experts, or the state of an optimizer without
// ZeRO; says what can be imported instead. A universal checkpoint may have experts, and needs no optimizers.
absl::StatusOr<DeepSpeedFiles> DeepSpeedFilesAmong(const std::vector<std::string>& names, bool is_universal,
                                                   const std::string& directory);

}  // namespace cairn

#endif  // CAIRN_FOREIGN_READ_DEEPSPEED_DEEPSPEED_FILES_H_

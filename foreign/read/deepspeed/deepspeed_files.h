// Sorts the files of a DeepSpeed checkpoint by their names.
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
  // The part of the model that one rank of tensor and pipeline parallelism holds; DeepSpeed calls its number "mp_rank".
  // The data-parallel ranks that hold copies of the part divide its optimizer state among them.
  struct Part {
    std::vector<std::string> models;      // one file; or in stage 3 one file of each rank, by rank
    std::vector<std::string> optimizers;  // one file of each rank, by rank
  };
  std::vector<Part> parts;  // by number; one if the model is not cut
  // The files of a pipeline's layers, sorted.
  struct Layer {
    uint32_t index = 0;  // of the layer, in the whole model
    uint32_t slice = 0;  // the number of the slice into which tensor parallelism has cut the layer
    std::string name;
    auto operator<=>(const Layer&) const = default;
  };
  std::vector<Layer> layers;
  // Only for a universal checkpoint: "zero/WEIGHT/KEY.pt" and "zero/KEY.pt", sorted. DeepSpeedFilesAmong leaves this
  // empty. A universal checkpoint has no `layers`, and its `parts` have only `models`, if all parts have these files.
  std::vector<std::string> parameters;
  bool is_universal = false;
};

// Returns true if a file of this name makes its directory a checkpoint of DeepSpeed.
bool IsDeepSpeedName(const std::string& name);

// Finds the files of a checkpoint among the names in its directory, without those below "zero". `directory` is for
// errors. DATA_LOSS (FILE_MISSING): the file of a rank or of a part is missing. DATA_LOSS (BAD_FOREIGN_FILE): the files
// are of several saves. UNIMPLEMENTED (UNSUPPORTED): they hold a model with experts, or the state of an optimizer
// without ZeRO; the message says what can be imported instead. A universal checkpoint may have experts, and needs no
// optimizers.
absl::StatusOr<DeepSpeedFiles> DeepSpeedFilesAmong(const std::vector<std::string>& names, bool is_universal,
                                                   const std::string& directory);

}  // namespace cairn

#endif  // CAIRN_FOREIGN_READ_DEEPSPEED_DEEPSPEED_FILES_H_

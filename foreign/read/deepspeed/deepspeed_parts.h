// The contents of a DeepSpeed checkpoint's files: the parts of the model, and the rules by which they make up its
// tensors.
#ifndef CAIRN_FOREIGN_READ_DEEPSPEED_DEEPSPEED_PARTS_H_
#define CAIRN_FOREIGN_READ_DEEPSPEED_DEEPSPEED_PARTS_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "foreign/read/deepspeed/deepspeed_files.h"
#include "foreign/read/deepspeed/deepspeed_slices.h"
#include "foreign/read/deepspeed/deepspeed_states.h"
#include "foreign/read/deepspeed/parallel_rules.h"
#include "foreign/read/source/foreign_file.h"
#include "foreign/read/source/strided_tensor.h"

namespace cairn {

struct DeepSpeedParts {
  // Reads all files of `names` below `directory`, by several threads and without the bytes of tensors, and finds out
  // how the model is cut. Fails as ForeignFile::OpenBelow, ReadDeepSpeedModel, ReadDeepSpeedOptimizer,
  // LearnParallelism, CheckRanks and CheckLayers.
  static absl::StatusOr<DeepSpeedParts> Read(const std::string& directory, const DeepSpeedFiles& names);

  // Finds out how many stages and slices there are, and how slices make up tensors, from `parts` and the names of the
  // files alone. DATA_LOSS (BAD_FOREIGN_FILE): the files contradict each other; (FILE_MISSING). UNIMPLEMENTED
  // (UNSUPPORTED): the files do not say how slices make up a weight, or the model has experts. Also fails as
  // ParallelRules::Create does.
  absl::Status LearnParallelism(const DeepSpeedFiles& names);

  // Finds how the slices of a parameter make it up. Fails as ParallelRules::Merge does. UNIMPLEMENTED (UNSUPPORTED):
  // the files do not say it.
  absl::StatusOr<MergedShape> MergeParameter(const std::string& name, std::span<const StoredSlice* const> merged) const;

  // Returns the part of one slice in one stage of the pipeline.
  const DeepSpeedPart& Part(size_t stage, size_t slice) const { return parts[stage * slices + slice]; }
  // Checks that each layer of a pipeline has a file. With a pipeline, weights and buffers are only in the files of
  // layers and not in the models' files. It looks at `parts` and the names of the files alone. DATA_LOSS
  // (FILE_MISSING).
  absl::Status CheckLayers(const DeepSpeedFiles& names) const;

  size_t stages() const { return parts.size() / slices; }
  absl::Status InDirectory(const absl::Status& status) const;

  std::string directory;
  std::vector<std::string> file_names;                // below the directory, by number
  std::vector<std::optional<ForeignFile>> files;      // by number; all are set, and closed
  std::vector<DeepSpeedPart> parts;                   // as DeepSpeedFiles::parts
  std::vector<DeepSpeedRead<DeepSpeedLayer>> layers;  // as DeepSpeedFiles::layers
  // As DeepSpeedFiles::parameters; nothing for a value that is no tensor.
  std::vector<std::optional<StridedTensor>> parameters;
  uint32_t first_parameter = 0;  // the number of the file of parameters[0]
  size_t slices = 1;             // the number of slices into which tensor parallelism has cut the model
  std::optional<ParallelRules> rules;
};

}  // namespace cairn

#endif  // CAIRN_FOREIGN_READ_DEEPSPEED_DEEPSPEED_PARTS_H_

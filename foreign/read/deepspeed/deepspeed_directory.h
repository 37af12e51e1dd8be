// Reads a directory that DeepSpeed wrote, as if it were a checkpoint.
#ifndef CAIRN_FOREIGN_READ_DEEPSPEED_DEEPSPEED_DIRECTORY_H_
#define CAIRN_FOREIGN_READ_DEEPSPEED_DEEPSPEED_DIRECTORY_H_

#include <string>

#include "absl/status/statusor.h"
#include "common/format/manifest.h"

namespace cairn {

// Returns the directory of the newest checkpoint: `directory` itself if it holds files of DeepSpeed, else the directory
// below it that its file `latest` names; "" if there is neither. `latest` is ignored if there are safetensors files
// beside it: a trainer has made them from the checkpoint, and they are read instead. A user who wants the checkpoint
// itself names its own directory. `directory` is a resolved path (ResolvePath). DATA_LOSS (FILE_MISSING):
// `latest` names a directory that is not there. INVALID_ARGUMENT (PATH_ESCAPE): it names a path that is not below
// `directory`.
absl::StatusOr<std::string> FindDeepSpeedCheckpoint(const std::string& directory);

// Reads the files of ZeRO's stages 1, 2 and 3, or of a universal checkpoint. Stages of a pipeline, and slices of tensor
// parallelism, are put together. Each trained weight is read in full precision, under its own name; its copy in 16 bits
// is left out. The optimizer's tensors for it are named "optimizer.KEY.WEIGHT". Buffers and weights that are not
// trained are read as they are stored. Values that are no tensors are left out, except those of a universal checkpoint.
// Everything in the files is untrusted. Fails as DeepSpeedFilesAmong, ReadDeepSpeedModel, ReadDeepSpeedOptimizer,
// TrainedSlices, ParallelRules and ForeignManifest::Finish do. UNIMPLEMENTED (UNSUPPORTED): the files do not say how
// slices make up a weight, or buffers of slices differ.
absl::StatusOr<Manifest> ReadDeepSpeedDirectory(const std::string& directory);

}  // namespace cairn

#endif  // CAIRN_FOREIGN_READ_DEEPSPEED_DEEPSPEED_DIRECTORY_H_

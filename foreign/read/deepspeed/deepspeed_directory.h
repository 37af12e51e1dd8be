// Reads a directory that DeepSpeed wrote, as if it were a checkpoint.
#ifndef CAIRN_FOREIGN_READ_DEEPSPEED_DEEPSPEED_DIRECTORY_H_
#define CAIRN_FOREIGN_READ_DEEPSPEED_DEEPSPEED_DIRECTORY_H_

#include <string>

#include "absl/status/statusor.h"
#include "common/format/manifest.h"

namespace cairn {

// Returns the directory of the newest checkpoint: `directory` itself if it holds files of DeepSpeed, or the one below
// it that its file `latest` names; "" if it is neither. `latest` does not count if there are safetensors files beside
// it: a trainer has made these of the checkpoint, and who wants the checkpoint names its own directory.
// `directory` is an absolute path without symbolic links. DATA_LOSS (FILE_MISSING): `latest` names a directory that is
// not there. INVALID_ARGUMENT (PATH_ESCAPE): it names something elsewhere.
absl::StatusOr<std::string> FindDeepSpeedCheckpoint(const std::string& directory);

// Reads the files of ZeRO's stages 1, 2 and 3, or of a universal checkpoint. Stages of a pipeline, and slices of tensor
// parallelism, are put together. A weight in full precision has its own
// name, and what the optimizer keeps for it is named "optimizer.KEY.WEIGHT". Buffers, and weights that are not trained,
// are as they were stored; the copies of trained weights in 16 bits are left out, and so are values that are no
// tensors, but for those of a universal checkpoint. Everything in the files is untrusted. Fails as
// DeepSpeedFilesAmong, ReadDeepSpeedModel, ReadDeepSpeedOptimizer, TrainedSlices, ParallelRules and
// ForeignManifest::Finish do. UNIMPLEMENTED (UNSUPPORTED): nothing says how slices make up a weight, or buffers of
// slices differ.
absl::StatusOr<Manifest> ReadDeepSpeedDirectory(const std::string& directory);

}  // namespace cairn

#endif  // CAIRN_FOREIGN_READ_DEEPSPEED_DEEPSPEED_DIRECTORY_H_

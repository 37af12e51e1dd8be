// Reads checkpoints of other programs, as if they were checkpoints of Cairn.
#ifndef CAIRN_FOREIGN_READ_FOREIGN_DIRECTORY_H_
#define CAIRN_FOREIGN_READ_FOREIGN_DIRECTORY_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/format/manifest.h"

namespace cairn {

// Reads a directory of torch.distributed.checkpoint (it has a `.metadata`), of torchsnapshot, of Paddle's
// FlexCheckpoint, of DeepSpeed or of safetensors files, as Hugging Face writes them. Or it reads a file that torch.save
// or paddle.save wrote. It may be on this machine or in an object store
// ("s3://bucket/prefix"). In the manifest the name of a file is its full name without symbolic links (place.h). Fails
// as FullNameOf does. DATA_LOSS (FILE_MISSING): nothing is at the path, or the directory holds none of these formats.
// NOT_FOUND (ROOT_MISSING): there is no such bucket. Also fails as ReadDcpDirectory, ReadTorchsnapshotDirectory,
// ReadPaddleDirectory, ReadDeepSpeedDirectory, ReadSafetensorsDirectory, ReadTorchArchive and ReadPaddleFile do.
//
// If the source is one file, its values that are no tensors are left out; `left_out`, if it is not null, gets their
// names.
absl::StatusOr<Manifest> ReadForeignDirectory(const std::string& directory,
                                              std::vector<std::string>* left_out = nullptr);

}  // namespace cairn

#endif  // CAIRN_FOREIGN_READ_FOREIGN_DIRECTORY_H_

// Reads what other programs wrote, as if it were a checkpoint of Cairn.
#ifndef CAIRN_FOREIGN_READ_FOREIGN_DIRECTORY_H_
#define CAIRN_FOREIGN_READ_FOREIGN_DIRECTORY_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/format/manifest.h"

namespace cairn {

// Reads a directory of torch.distributed.checkpoint (it has a `.metadata`), of torchsnapshot, of Paddle's
// FlexCheckpoint, of DeepSpeed or of safetensors files, as Hugging Face writes them, or a file that torch.save or
// paddle.save wrote.
// Files have their absolute paths as names, without symbolic links. INVALID_ARGUMENT (BAD_REQUEST): `directory` is not
// absolute. DATA_LOSS (FILE_MISSING): nothing stands there, or nothing of these kinds is in it. Also fails as
// ReadDcpDirectory, ReadTorchsnapshotDirectory, ReadPaddleDirectory, ReadDeepSpeedDirectory, ReadSafetensorsDirectory,
// ReadTorchArchive and ReadPaddleFile do.
//
// A source that is one file loses its values that are no tensors; `left_out`, if it is not null, gets their names.
absl::StatusOr<Manifest> ReadForeignDirectory(const std::string& directory,
                                              std::vector<std::string>* left_out = nullptr);

}  // namespace cairn

#endif  // CAIRN_FOREIGN_READ_FOREIGN_DIRECTORY_H_

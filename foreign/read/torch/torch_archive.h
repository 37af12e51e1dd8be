// Reads one file that torch.save wrote, as if it were a checkpoint.
#ifndef CAIRN_FOREIGN_READ_TORCH_TORCH_ARCHIVE_H_
#define CAIRN_FOREIGN_READ_TORCH_TORCH_ARCHIVE_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/format/manifest.h"

namespace cairn {

// Reads the tensors of a file whose value is a dict. Keys of nested dicts and positions in nested lists are joined by
// "."; a tensor with the same place, shape and dtype as another one is an alias of it. Values that are no tensors are
// left out, because no range of the file holds one of them alone; for `left_out` see ReadTensorTree. The file has no
// checksums. Everything in it is untrusted, and `path` is a resolved path (ResolvePath). DATA_LOSS
// (BAD_FOREIGN_FILE, FILE_TRUNCATED): it is not such a file, or two tensors share only a part of their memory.
// INVALID_ARGUMENT (BAD_NAME, NAME_COLLISION): Cairn does not allow a name, or two tensors have it. UNIMPLEMENTED
// (UNSUPPORTED): its value is no dict, or as TorchFile.
absl::StatusOr<Manifest> ReadTorchArchive(const std::string& path, std::vector<std::string>* left_out = nullptr);

}  // namespace cairn

#endif  // CAIRN_FOREIGN_READ_TORCH_TORCH_ARCHIVE_H_

#include "import/torch_archive.h"

#include "common/status/status.h"
#include "import/foreign_file.h"
#include "import/tensor_tree.h"
#include "import/torch_file.h"

namespace cairn {

absl::StatusOr<Manifest> ReadTorchArchive(const std::string& path, std::vector<std::string>* left_out) {
  CAIRN_ASSIGN_OR_RETURN(const ForeignFile file, ForeignFile::Open(path));
  const ReadRange read = [&](uint64_t offset, uint64_t bytes) { return file.Read(offset, bytes); };
  CAIRN_ASSIGN_OR_RETURN(const TorchFile archive, TorchFile::Open(file.bytes(), read, path));
  return ReadTensorTree(
      "cairn import torch.save 1", file, archive.document(), [&](PickleValue value) { return archive.Tensor(value); },
      left_out);
}

}  // namespace cairn

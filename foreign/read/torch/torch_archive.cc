#include "foreign/read/torch/torch_archive.h"

#include "common/status/status.h"
#include "foreign/read/source/foreign_file.h"
#include "foreign/read/source/tensor_tree.h"
#include "foreign/read/torch/torch_file.h"

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

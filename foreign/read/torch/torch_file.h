// Reads a file of torch.save: the values, and where the elements of the tensors lie.
//
// Format: PyTorch's torch/serialization.py and torch/_utils.py.
#ifndef CAIRN_FOREIGN_READ_TORCH_TORCH_FILE_H_
#define CAIRN_FOREIGN_READ_TORCH_TORCH_FILE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "common/tensor/box.h"
#include "common/tensor/dtype.h"
#include "foreign/read/pickle/pickle.h"
#include "foreign/read/pickle/read_range.h"
#include "foreign/read/source/strided_tensor.h"
#include "foreign/read/torch/zip_archive.h"

namespace cairn {

// One archive of torch.save. It holds the pickle and the positions of the storages in memory, but not the tensors'
// bytes.
class TorchFile {
 public:
  // Reads the archive's directory and pickle, which are untrusted. `what` names the archive in errors. DATA_LOSS
  // (BAD_FOREIGN_FILE): it is no such archive. UNIMPLEMENTED (UNSUPPORTED): it was written on a big-endian machine, or
  // is compressed. Also fails as `read` and ReadPickle do.
  static absl::StatusOr<TorchFile> Open(uint64_t bytes, const ReadRange& read, std::string what);

  const PickleDocument& document() const { return *document_; }
  const std::string& what() const { return what_; }

  // Returns the tensor that a value describes; nothing for another value. DATA_LOSS (BAD_FOREIGN_FILE): the tensor
  // contradicts itself or leaves its storage. UNIMPLEMENTED (UNSUPPORTED): Cairn does not know its dtype.
  absl::StatusOr<std::optional<StridedTensor>> Tensor(PickleValue value) const;

 private:
  absl::Status Bad(std::string_view problem) const;
  absl::StatusOr<StridedTensor> Rebuilt(std::span<const PickleValue> arguments, bool names_dtype) const;

  std::string what_;
  std::unique_ptr<std::string> pickle_;  // document_ points into it
  std::unique_ptr<PickleDocument> document_;
  absl::flat_hash_map<std::string, ZipRecord> storages_;  // by key
};

// Returns the dtype that a global of torch names ("torch.bfloat16"); nothing for another value.
std::optional<DType> TorchDtype(const PickleDocument& document, PickleValue value);
// Returns the dimensions in a tuple of integers; nothing for another value.
std::optional<Shape> TorchSize(const PickleDocument& document, PickleValue value);
// Writes the dimensions into `shape`, whose memory is used again. Returns false if `value` is no tuple of integers.
bool ReadTorchSize(const PickleDocument& document, PickleValue value, Shape& shape);

}  // namespace cairn

#endif  // CAIRN_FOREIGN_READ_TORCH_TORCH_FILE_H_

// Reads a file that holds one value, made of dicts, lists and tensors, as a checkpoint.
#ifndef CAIRN_FOREIGN_READ_SOURCE_TENSOR_TREE_H_
#define CAIRN_FOREIGN_READ_SOURCE_TENSOR_TREE_H_

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "common/format/manifest.h"
#include "foreign/read/pickle/pickle_document.h"
#include "foreign/read/source/foreign_file.h"
#include "foreign/read/source/strided_tensor.h"

namespace cairn {

// Returns the tensor that a value describes; nothing for another value.
using TensorOf = std::function<absl::StatusOr<std::optional<StridedTensor>>(PickleValue value)>;

// Makes a checkpoint of the tensors in a file whose value is a dict. A tensor's name is made of the keys and positions
// that lead to it, with dots between them. Tensors at the same place are aliases of the first one. Values that are no
// tensors are left out; `left_out`, if it is not null, gets the name and type of each, in the order of the file. `kind`
// makes the digests of different formats differ. DATA_LOSS (BAD_FOREIGN_FILE): it is nested too deeply. UNIMPLEMENTED
// (UNSUPPORTED): it holds no dict, or a tensor with strides that would take too many reads. INVALID_ARGUMENT
// (NAME_COLLISION, BAD_NAME): a tensor's name is not allowed. Also fails as `tensor_of` does.
absl::StatusOr<Manifest> ReadTensorTree(std::string_view kind, const ForeignFile& file, const PickleDocument& document,
                                        const TensorOf& tensor_of, std::vector<std::string>* left_out);

}  // namespace cairn

#endif  // CAIRN_FOREIGN_READ_SOURCE_TENSOR_TREE_H_

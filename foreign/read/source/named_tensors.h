// Collects tensors, whose pieces may lie in several foreign files, and values by name, until all are known and a
// ForeignManifest can be filled.
#ifndef CAIRN_FOREIGN_READ_SOURCE_NAMED_TENSORS_H_
#define CAIRN_FOREIGN_READ_SOURCE_NAMED_TENSORS_H_

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "common/tensor/box.h"
#include "common/tensor/dtype.h"
#include "foreign/read/source/foreign_manifest.h"
#include "foreign/read/source/strided_tensor.h"

namespace cairn {

class NamedTensors {
 public:
  // Returns whether a tensor, an alias or a value has the name.
  bool Has(const std::string& name) const {
    return tensors_.contains(name) || aliases_.contains(name) || values_.contains(name);
  }

  // Adds a tensor without elements so far. INVALID_ARGUMENT (NAME_COLLISION): the name is taken; (BAD_NAME).
  absl::Status Add(const std::string& name, DType dtype, const Shape& shape);
  // Adds elements of a tensor that has been added: a box, whose elements lie row-major from `offset` of a file on.
  void AddBox(const std::string& name, Box box, uint32_t file, uint64_t offset);
  // Adds a tensor that lies whole in a file. If a tensor of the same shape and dtype was added at the same place, the
  // new one becomes its alias. Other views of the same bytes are tensors of their own. UNIMPLEMENTED (UNSUPPORTED): its
  // strides, or those of all tensors, would take too many reads. Also fails as Add does.
  absl::Status AddWhole(const std::string& name, const StridedTensor& tensor, uint32_t file);
  // Adds a second name of a tensor that has been added. INVALID_ARGUMENT (NAME_COLLISION, BAD_NAME): as Add.
  absl::Status AddAlias(const std::string& name, const std::string& target);

  // Adds a value that is no tensor: all of a file that torch.save wrote. Fails as Add does.
  absl::Status AddValue(const std::string& name, uint32_t file, uint64_t bytes);

  // Puts everything into a manifest.
  void MoveTo(ForeignManifest& manifest) &&;

 private:
  struct Piece {
    Box box;
    uint32_t file;
    uint64_t offset;
  };
  struct Tensor {
    DType dtype;
    Shape shape;
    std::vector<Piece> pieces;
  };

  absl::Status CheckNew(const std::string& name) const;
  absl::Status TooManyReads(const std::string& name, std::string_view problem) const;

  std::map<std::string, Tensor> tensors_;
  size_t further_pieces_ = 0;  // the pieces of whole tensors beyond the first piece of each
  std::map<std::string, std::string> aliases_;
  std::map<std::string, std::pair<uint32_t, uint64_t>> values_;  // file and length
  // The name of each whole tensor, by file, offset, dtype, shape and strides.
  std::map<std::tuple<uint32_t, uint64_t, DType, Shape, Shape>, std::string> places_;
};

}  // namespace cairn

#endif  // CAIRN_FOREIGN_READ_SOURCE_NAMED_TENSORS_H_

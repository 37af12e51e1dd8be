// The parameters in one part of a model, and the places of their elements in the files. A model that is not cut by
// tensor or pipeline parallelism is one part, and its slices are the whole parameters.
#ifndef CAIRN_FOREIGN_READ_DEEPSPEED_DEEPSPEED_SLICES_H_
#define CAIRN_FOREIGN_READ_DEEPSPEED_DEEPSPEED_SLICES_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/tensor/box.h"
#include "common/tensor/dtype.h"
#include "foreign/read/deepspeed/deepspeed_states.h"
#include "foreign/read/source/strided_tensor.h"

namespace cairn {

// The content of one file, with the file's number and path.
template <typename Content>
struct DeepSpeedRead {
  Content content;
  uint32_t file = 0;  // its number
  std::string path;
};

// The contents of the files of one part (DeepSpeedFiles::Part).
struct DeepSpeedPart {
  std::vector<DeepSpeedRead<DeepSpeedModel>> models;          // one, or one of each rank
  std::vector<DeepSpeedRead<DeepSpeedOptimizer>> optimizers;  // of each rank
};

// A tensor, in boxes whose elements lie row-major and without gaps.
struct StoredSlice {
  struct Piece {
    Box box;
    uint32_t file = 0;
    uint64_t offset = 0;
  };
  DType dtype = DType::kFloat32;
  Shape shape;
  std::vector<Piece> pieces;
};

// A trained parameter, and the optimizer's tensors for it.
struct TrainedSlice {
  struct Number {  // one value for all parameters of a group, such as the optimizer's step
    StridedTensor tensor;
    uint32_t file = 0;
  };
  StoredSlice weight;
  std::map<std::string, StoredSlice> states;  // by key
  std::map<std::string, Number> numbers;      // by key
};

// Finds the trained parameters of a part by their names. `where` names the checkpoint in errors. DATA_LOSS
// (BAD_FOREIGN_FILE): the files contradict each other. Also fails as PartitionVectors does.
absl::StatusOr<std::map<std::string, TrainedSlice>> TrainedSlices(const DeepSpeedPart& part, const std::string& where);

// Finds the parameters that are not trained, if the files hold them separately from the model. Fails as TrainedSlices.
absl::StatusOr<std::map<std::string, StoredSlice>> FrozenSlices(const DeepSpeedPart& part, const std::string& where);

// Returns a whole tensor of a file. UNIMPLEMENTED (UNSUPPORTED): its strides would take too many reads.
absl::StatusOr<StoredSlice> WholeSlice(const std::string& name, const StridedTensor& tensor, uint32_t file);

}  // namespace cairn

#endif  // CAIRN_FOREIGN_READ_DEEPSPEED_DEEPSPEED_SLICES_H_

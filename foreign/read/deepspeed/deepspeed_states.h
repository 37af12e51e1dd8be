// Reads the files of a DeepSpeed checkpoint.
//
// Source: the `save` functions of deepspeed/runtime/engine.py, zero/stage_1_and_2.py, zero/stage3.py and
// bf16_optimizer.py of DeepSpeed 0.19.
#ifndef CAIRN_FOREIGN_READ_DEEPSPEED_DEEPSPEED_STATES_H_
#define CAIRN_FOREIGN_READ_DEEPSPEED_DEEPSPEED_STATES_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "common/tensor/box.h"
#include "foreign/read/deepspeed/parallel_rules.h"
#include "foreign/read/deepspeed/zero_partition.h"
#include "foreign/read/source/strided_tensor.h"
#include "foreign/read/torch/torch_file.h"

namespace cairn {

// The content of a `*_model_states.pt`. Values that are no tensors are left out.
struct DeepSpeedModel {
  std::vector<ZeroGroup> groups;                // the trained parameters; empty if the file does not name them
  std::map<std::string, StridedTensor> module;  // in stage 3 these are empty tensors, except buffers
  // Parameters that are not trained: their shapes; and in stage 3 this rank's part of each, else the whole parameter.
  std::map<std::string, Shape> frozen_shapes;
  std::map<std::string, StridedTensor> frozen;
  std::vector<std::pair<std::string, std::string>> shared;  // (second name, name of the parameter)
  std::set<std::string> buffers;                            // names in `module`, or in the files of layers
  // The numbers of pipeline stages, of slices and of parts (their product) into which the model is cut; 0: the file
  // does not say.
  uint64_t stages = 0, slices = 0, parts = 0;
  std::optional<int64_t> steps;          // the training step; nothing: the file does not say
  std::optional<ParallelInfo> parallel;  // nothing: the file does not say how tensors are cut
  bool has_experts = false;              // experts in DeepSpeed's own layers (AutoEP)
};

// The content of a `*_optim_states.pt`.
struct DeepSpeedOptimizer {
  bool by_parameter = false;           // each parameter is cut by itself, as in stage 3
  uint64_t ranks = 0;                  // the number of ranks among which it is divided; 0: the file does not say
  std::optional<int64_t> stage;        // of ZeRO; nothing: the file does not say
  std::vector<StridedTensor> weights;  // in full precision: one flat tensor for each group
  // For each group the optimizer's states by key: flat tensors and scalars.
  std::vector<std::map<std::string, StridedTensor>> states;
  // For each group the number of its steps, if the file has it as a plain number and not as a tensor.
  std::vector<std::optional<double>> steps;
  std::vector<std::vector<int64_t>> paddings;  // behind each parameter of each group; empty: none
};

// The tensors of a `layer_*-model_states.pt`, by their names within the layer.
using DeepSpeedLayer = std::map<std::string, StridedTensor>;

// DATA_LOSS (BAD_FOREIGN_FILE): it is not such a file, or contradicts itself. Also fails as TorchFile::Tensor does.
absl::StatusOr<DeepSpeedModel> ReadDeepSpeedModel(const TorchFile& file);
// Fails as ReadDeepSpeedModel does. UNIMPLEMENTED (UNSUPPORTED): the optimizer's state is not ZeRO's.
absl::StatusOr<DeepSpeedOptimizer> ReadDeepSpeedOptimizer(const TorchFile& file);
// Fails as TorchFile::Tensor does.
absl::StatusOr<DeepSpeedLayer> ReadDeepSpeedLayer(const TorchFile& file);

}  // namespace cairn

#endif  // CAIRN_FOREIGN_READ_DEEPSPEED_DEEPSPEED_STATES_H_

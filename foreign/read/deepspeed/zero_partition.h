// Finds where the elements of a model's parameters lie in the files that the ranks of DeepSpeed's ZeRO have saved.
//
// Source: deepspeed/utils/zero_to_fp32.py of DeepSpeed 0.19.
#ifndef CAIRN_FOREIGN_READ_DEEPSPEED_ZERO_PARTITION_H_
#define CAIRN_FOREIGN_READ_DEEPSPEED_ZERO_PARTITION_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/tensor/box.h"
#include "common/tensor/flat_range.h"

namespace cairn {

// The parameters in one flat tensor of each rank, in their order.
struct ZeroGroup {
  struct Parameter {
    std::string name;
    Shape shape;
    int64_t padding = 0;  // number of meaningless elements behind the parameter
  };
  std::vector<Parameter> parameters;
};

// A part of a parameter that lies in one flat tensor.
struct ZeroFragment {
  uint32_t rank = 0;
  uint32_t group = 0;
  int64_t begin = 0;  // element of the rank's flat tensor of that group
  FlatRange range;    // the elements of the parameter, row-major
};

struct ZeroParameter {
  std::string name;
  Shape shape;
  std::vector<ZeroFragment> fragments;  // by range; together they are the parameter
};

// Counts the elements in each rank's flat tensor of each group.
using ZeroLengths = std::vector<std::vector<int64_t>>;

// Stages 1 and 2: the parameters of a group follow one another in one vector. The vector is cut into one part for each
// rank, in the order of the ranks, and may have padding at its end. DATA_LOSS (BAD_FOREIGN_FILE): the lengths of the
// parts do not fit the parameters, or the number of a shape's elements overflows.
absl::StatusOr<std::vector<ZeroParameter>> PartitionVectors(const std::vector<ZeroGroup>& groups,
                                                            const ZeroLengths& lengths);

// Stage 3: each parameter is cut into as many equal parts as there are ranks, the last ones padded. The parts of a rank
// follow one another, from one of its flat tensors to the next. Fails as PartitionVectors.
absl::StatusOr<std::vector<ZeroParameter>> PartitionParameters(const std::vector<ZeroGroup>& groups,
                                                               const ZeroLengths& lengths);

}  // namespace cairn

#endif  // CAIRN_FOREIGN_READ_DEEPSPEED_ZERO_PARTITION_H_

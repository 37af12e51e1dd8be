// Reads the values of a checkpoint that are no tensors, for exports.
#ifndef CAIRN_FOREIGN_WRITE_TORCH_EXPORTED_VALUES_H_
#define CAIRN_FOREIGN_WRITE_TORCH_EXPORTED_VALUES_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/format/manifest.h"
#include "foreign/read/dcp/per_rank_values.h"
#include "foreign/tensors/item_reader.h"
#include "foreign/tensors/whole_tensors.h"
#include "foreign/write/torch/object_value.h"

namespace cairn {

struct ExportedValue {
  std::string name;               // the parts of the path, joined by "."
  std::vector<ObjectValue> path;  // the checkpoint's name, then keys and positions within
  ObjectValue value;
  std::string object;  // the name in the checkpoint
};

// Returns the chosen values, by name. If every rank has an object of its own: one value with the object's name if all
// are equal, else one value for each rank, with ".rank0" and so on behind the name. Fails as ItemReader and
// ReadObjectValue do.
absl::StatusOr<std::vector<ExportedValue>> ReadExportedValues(const Manifest& manifest, const TensorChoice& choice,
                                                              ItemReader& reader);

// Returns the values of which every rank has its own, and their bytes, for the file of per_rank_values.h. `values` are
// all exported values, under the names that PyTorch reads. Fails as ItemReader does.
struct ValuesOfRanks {
  PerRankValues values;
  std::vector<std::string> contents;  // parallel to values.values
};
absl::StatusOr<ValuesOfRanks> ReadValuesOfRanks(const Manifest& manifest, const TensorChoice& choice,
                                                const std::vector<ExportedValue>& values, ItemReader& reader);

// Splits values into their parts where torch.distributed.checkpoint does: dicts, and lists that hold dicts at any
// depth.
std::vector<ExportedValue> TakeApart(std::vector<ExportedValue> values);

// UNIMPLEMENTED (UNSUPPORTED): some values have parts that only the code of their class could build; the message names
// the values.
absl::Status CheckNoneIsOpaque(const std::vector<ExportedValue>& values);

}  // namespace cairn

#endif  // CAIRN_FOREIGN_WRITE_TORCH_EXPORTED_VALUES_H_

// Finds the values of a checkpoint that are no tensors, under the names that torch.distributed.checkpoint gives them.
#ifndef CAIRN_EXPORT_EXPORTED_VALUES_H_
#define CAIRN_EXPORT_EXPORTED_VALUES_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/format/manifest.h"
#include "export/item_reader.h"
#include "export/object_value.h"
#include "export/whole_tensors.h"

namespace cairn {

struct ExportedValue {
  std::string name;               // the parts of the path, joined by "."
  std::vector<ObjectValue> path;  // the checkpoint's name, then keys and positions within
  ObjectValue value;
};

// Returns the chosen values, by name. What torch.distributed.checkpoint takes apart is taken apart: dicts, and lists
// that hold dicts at any depth. An object of which every rank has its own keeps its name if all are the same, and gets
// ".rank0" and so on behind it if they are not. UNIMPLEMENTED (UNSUPPORTED): names the values that only a class's own
// code could make. INVALID_ARGUMENT (NAME_COLLISION): two values have one name, or a value has that of a tensor. Else
// as ItemReader and ReadObjectValue.
absl::StatusOr<std::vector<ExportedValue>> ReadExportedValues(const Manifest& manifest, const TensorChoice& choice,
                                                              ItemReader& reader);

}  // namespace cairn

#endif  // CAIRN_EXPORT_EXPORTED_VALUES_H_

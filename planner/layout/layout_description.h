// A layout in a form that is easy to write by hand or in a test, and its canonical bytes.
#ifndef CAIRN_PLANNER_LAYOUT_LAYOUT_DESCRIPTION_H_
#define CAIRN_PLANNER_LAYOUT_LAYOUT_DESCRIPTION_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/tensor/box.h"
#include "common/tensor/dtype.h"
#include "common/tensor/flat_range.h"

namespace cairn {

struct ShardDescription {
  Box box;
  std::optional<FlatRange> flat;
  bool operator==(const ShardDescription&) const = default;
};
struct TensorDescription {
  std::string name;
  DType dtype = DType::kUnspecified;
  Shape global_shape;
  std::vector<ShardDescription> shards;
};
struct ObjectDescription {
  std::string name;
  uint64_t slot_bytes = 0;
  bool per_rank = false;
  uint32_t wish = 0;  // an ObjectWish
};
struct LayoutDescription {
  std::vector<TensorDescription> tensors;
  std::vector<ObjectDescription> objects;
  std::vector<std::pair<std::string, std::string>> aliases;  // name, target
};

// Sorts everything as cairn.v1.Layout demands: tensors, objects and aliases by name, shards by (offset, flat range).
void Canonicalize(LayoutDescription& layout);

// Returns the serialized cairn.v1.Layout of a canonical description. It checks nothing.
std::string SerializeLayout(const LayoutDescription& layout);

}  // namespace cairn

#endif  // CAIRN_PLANNER_LAYOUT_LAYOUT_DESCRIPTION_H_

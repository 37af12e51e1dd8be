#include "planner/layout/layout_description.h"

#include <algorithm>
#include <tuple>

#include "planner/layout/wire.h"

namespace cairn {

void Canonicalize(LayoutDescription& layout) {
  const auto by_name = [](const auto& a, const auto& b) { return a.name < b.name; };
  std::stable_sort(layout.tensors.begin(), layout.tensors.end(), by_name);
  std::stable_sort(layout.objects.begin(), layout.objects.end(), by_name);
  std::stable_sort(layout.aliases.begin(), layout.aliases.end());
  for (TensorDescription& tensor : layout.tensors) {
    std::stable_sort(tensor.shards.begin(), tensor.shards.end(), [](const auto& a, const auto& b) {
      const FlatRange x = a.flat.value_or(FlatRange{-1, -1}), y = b.flat.value_or(FlatRange{-1, -1});
      return std::tie(a.box.offset, a.box.shape, x.begin, x.end) < std::tie(b.box.offset, b.box.shape, y.begin, y.end);
    });
  }
}

std::string SerializeLayout(const LayoutDescription& layout) {
  std::string schema, out, nested;
  WireWriter names(schema);
  std::vector<uint32_t> dtypes, ndims, shard_tensor, flat_shard;
  std::vector<int64_t> dims, offsets, shapes, flat_begin, flat_end;
  for (uint32_t i = 0; i < layout.tensors.size(); ++i) {
    const TensorDescription& tensor = layout.tensors[i];
    names.Bytes(1, tensor.name);
    dtypes.push_back(static_cast<uint32_t>(tensor.dtype));
    ndims.push_back(static_cast<uint32_t>(tensor.global_shape.size()));
    dims.insert(dims.end(), tensor.global_shape.begin(), tensor.global_shape.end());
    for (const ShardDescription& shard : tensor.shards) {
      if (shard.flat) {
        flat_shard.push_back(static_cast<uint32_t>(shard_tensor.size()));
        flat_begin.push_back(shard.flat->begin);
        flat_end.push_back(shard.flat->end);
      }
      shard_tensor.push_back(i);
      offsets.insert(offsets.end(), shard.box.offset.begin(), shard.box.offset.end());
      shapes.insert(shapes.end(), shard.box.shape.begin(), shard.box.shape.end());
    }
  }
  names.Packed(2, dtypes);
  names.Packed(3, ndims);
  names.Packed(4, dims);
  WireWriter writer(out);
  writer.String(1, schema);
  writer.Packed(2, shard_tensor);
  writer.Packed(3, offsets);
  writer.Packed(4, shapes);
  writer.Packed(5, flat_shard);
  writer.Packed(6, flat_begin);
  writer.Packed(7, flat_end);
  for (const ObjectDescription& object : layout.objects) {
    nested.clear();
    WireWriter inner(nested);
    inner.String(1, object.name);
    inner.Number(2, object.slot_bytes);
    inner.Number(3, object.per_rank);
    writer.Bytes(8, nested);
  }
  for (const auto& [name, target] : layout.aliases) {
    nested.clear();
    WireWriter inner(nested);
    inner.String(1, name);
    inner.String(2, target);
    writer.Bytes(9, nested);
  }
  return out;
}

}  // namespace cairn

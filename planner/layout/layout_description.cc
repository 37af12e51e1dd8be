#include "planner/layout/layout_description.h"

#include <algorithm>
#include <tuple>

#include "cairn/v1/layout.pb.h"
#include "common/format/wire.h"

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
    names.Bytes(v1::TensorSchema::kNamesFieldNumber, tensor.name);
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
  names.Packed(v1::TensorSchema::kDtypesFieldNumber, dtypes);
  names.Packed(v1::TensorSchema::kNdimsFieldNumber, ndims);
  names.Packed(v1::TensorSchema::kGlobalDimsFieldNumber, dims);
  WireWriter writer(out);
  writer.String(v1::Layout::kTensorSchemaFieldNumber, schema);
  writer.Packed(v1::Layout::kShardTensorsFieldNumber, shard_tensor);
  writer.Packed(v1::Layout::kShardOffsetsFieldNumber, offsets);
  writer.Packed(v1::Layout::kShardShapesFieldNumber, shapes);
  writer.Packed(v1::Layout::kFlatShardsFieldNumber, flat_shard);
  writer.Packed(v1::Layout::kFlatBeginsFieldNumber, flat_begin);
  writer.Packed(v1::Layout::kFlatEndsFieldNumber, flat_end);
  for (const ObjectDescription& object : layout.objects) {
    nested.clear();
    WireWriter inner(nested);
    inner.String(v1::ObjectDeclaration::kNameFieldNumber, object.name);
    inner.Number(v1::ObjectDeclaration::kSlotBytesFieldNumber, object.slot_bytes);
    inner.Number(v1::ObjectDeclaration::kPerRankFieldNumber, object.per_rank);
    inner.Number(v1::ObjectDeclaration::kWishFieldNumber, object.wish);
    writer.Bytes(v1::Layout::kObjectsFieldNumber, nested);
  }
  for (const auto& [name, target] : layout.aliases) {
    nested.clear();
    WireWriter inner(nested);
    inner.String(v1::AliasDeclaration::kNameFieldNumber, name);
    inner.String(v1::AliasDeclaration::kTargetFieldNumber, target);
    writer.Bytes(v1::Layout::kAliasesFieldNumber, nested);
  }
  return out;
}

}  // namespace cairn

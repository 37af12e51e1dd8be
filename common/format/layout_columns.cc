#include "common/format/layout_columns.h"

#include "cairn/v1/layout.pb.h"
#include "common/format/wire.h"

namespace cairn {
namespace {

// Shapes come from peers, so an absurd number of dimensions is refused first.
constexpr uint32_t kMaxDimensions = 64;

// Appends the value of a field of bytes. Returns false if the field is a number.
bool AppendBytes(const WireReader& field, std::vector<std::string_view>& values) {
  values.push_back(field.bytes());
  return field.is_bytes();
}

}  // namespace

std::optional<SchemaColumns> ParseSchema(std::string_view bytes) {
  using v1::TensorSchema;
  SchemaColumns columns;
  bool valid = true;
  WireReader reader(bytes);
  while (const uint32_t field = reader.NextField()) {
    if (field == TensorSchema::kNamesFieldNumber) valid &= AppendBytes(reader, columns.names);
    if (field == TensorSchema::kDtypesFieldNumber) valid &= AppendNumbers(reader, columns.dtypes);
    if (field == TensorSchema::kNdimsFieldNumber) valid &= AppendNumbers(reader, columns.ndims);
    if (field == TensorSchema::kGlobalDimsFieldNumber) valid &= AppendNumbers(reader, columns.dims);
  }
  if (!valid || !reader.ok()) return std::nullopt;
  const size_t tensors = columns.names.size();
  if (columns.dtypes.size() != tensors || columns.ndims.size() != tensors) return std::nullopt;
  uint64_t dims = 0;
  for (const uint32_t ndim : columns.ndims) {
    if (ndim > kMaxDimensions) return std::nullopt;
    dims += ndim;
  }
  if (dims != columns.dims.size()) return std::nullopt;
  return columns;
}

bool ParseLayout(std::string_view bytes, LayoutColumns& columns) {
  using v1::Layout;
  columns.schema = {};
  columns.shard_tensors.clear();
  columns.offsets.clear();
  columns.shapes.clear();
  columns.flat_shards.clear();
  columns.flat_begins.clear();
  columns.flat_ends.clear();
  columns.objects.clear();
  columns.aliases.clear();
  bool valid = true;
  WireReader reader(bytes);
  while (const uint32_t field = reader.NextField()) {
    switch (field) {
      case Layout::kTensorSchemaFieldNumber:
        valid &= reader.is_bytes();
        columns.schema = reader.bytes();
        break;
      case Layout::kShardTensorsFieldNumber:
        valid &= AppendNumbers(reader, columns.shard_tensors);
        break;
      case Layout::kShardOffsetsFieldNumber:
        valid &= AppendNumbers(reader, columns.offsets);
        break;
      case Layout::kShardShapesFieldNumber:
        valid &= AppendNumbers(reader, columns.shapes);
        break;
      case Layout::kFlatShardsFieldNumber:
        valid &= AppendNumbers(reader, columns.flat_shards);
        break;
      case Layout::kFlatBeginsFieldNumber:
        valid &= AppendNumbers(reader, columns.flat_begins);
        break;
      case Layout::kFlatEndsFieldNumber:
        valid &= AppendNumbers(reader, columns.flat_ends);
        break;
      case Layout::kObjectsFieldNumber:
        valid &= AppendBytes(reader, columns.objects);
        break;
      case Layout::kAliasesFieldNumber:
        valid &= AppendBytes(reader, columns.aliases);
        break;
      default:
        break;
    }
  }
  return valid && reader.ok();
}

std::optional<std::string_view> ContradictionOf(const LayoutColumns& columns, std::span<const uint32_t> ndims) {
  size_t dims = 0;
  for (const uint32_t tensor : columns.shard_tensors) {
    if (tensor >= ndims.size()) return "a shard names a tensor outside the schema";
    dims += ndims[tensor];
  }
  if (columns.offsets.size() != dims || columns.shapes.size() != dims) {
    return "offsets or shapes do not fit the shards' dimensions";
  }
  const size_t flat = columns.flat_shards.size();
  if (columns.flat_begins.size() != flat || columns.flat_ends.size() != flat) {
    return "flat ranges do not fit their shards";
  }
  for (size_t i = 0; i < flat; ++i) {
    const bool ascends = i == 0 || columns.flat_shards[i] > columns.flat_shards[i - 1];
    if (!ascends || columns.flat_shards[i] >= columns.shard_tensors.size()) return "flat shards are not ascending";
  }
  return std::nullopt;
}

std::optional<ObjectFields> ParseObject(std::string_view bytes) {
  using v1::ObjectDeclaration;
  ObjectFields object;
  WireReader reader(bytes);
  while (const uint32_t field = reader.NextField()) {
    if (reader.is_bytes()) {
      if (field == ObjectDeclaration::kNameFieldNumber) object.name = reader.bytes();
      if (field == ObjectDeclaration::kContentDigestFieldNumber) object.content_digest = reader.bytes();
    } else {
      if (field == ObjectDeclaration::kSlotBytesFieldNumber) object.slot_bytes = reader.number();
      if (field == ObjectDeclaration::kPerRankFieldNumber) object.per_rank = reader.number() != 0;
      if (field == ObjectDeclaration::kWishFieldNumber) object.wish = static_cast<uint32_t>(reader.number());
    }
  }
  return reader.ok() ? std::optional(object) : std::nullopt;
}

std::optional<AliasFields> ParseAlias(std::string_view bytes) {
  using v1::AliasDeclaration;
  AliasFields alias;
  WireReader reader(bytes);
  while (const uint32_t field = reader.NextField()) {
    if (!reader.is_bytes()) continue;
    if (field == AliasDeclaration::kNameFieldNumber) alias.name = reader.bytes();
    if (field == AliasDeclaration::kTargetFieldNumber) alias.target = reader.bytes();
  }
  return reader.ok() ? std::optional(alias) : std::nullopt;
}

}  // namespace cairn

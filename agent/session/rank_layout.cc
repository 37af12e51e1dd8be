#include "agent/session/rank_layout.h"

#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/digest.h"
#include "common/format/layout_columns.h"
#include "common/status/reason.h"
#include "common/status/status.h"

namespace cairn {
namespace {

absl::Status Bad(Reason reason, const std::string& name, std::string_view what) {
  return MakeError(reason, absl::StrCat(name, ": ", absl::string_view(what.data(), what.size())), {{"name", name}});
}

absl::Status Malformed(std::string_view what) {
  return MakeError(Reason::kBadRequest, absl::StrCat("not a layout: ", absl::string_view(what.data(), what.size())));
}

absl::Status ReadShards(const LayoutColumns& columns, const SchemaColumns& schema, std::vector<StoredItem>& items) {
  if (const auto contradiction = ContradictionOf(columns, schema.ndims); contradiction.has_value()) {
    return Malformed(*contradiction);
  }
  // Each tensor's dimensions begin here in the schema's column.
  std::vector<size_t> first_dim;
  for (size_t dims = 0; const uint32_t ndim : schema.ndims) {
    first_dim.push_back(dims);
    dims += ndim;
  }
  size_t at = 0;
  size_t flat = 0;
  for (size_t i = 0; i < columns.shard_tensors.size(); ++i) {
    const uint32_t tensor = columns.shard_tensors[i];
    const size_t ndim = schema.ndims[tensor];
    StoredItem item;
    item.name = std::string(schema.names[tensor]);
    CAIRN_RETURN_IF_ERROR(CheckName(item.name));
    const auto dtype = DTypeFromNumber(schema.dtypes[tensor]);
    if (!dtype) return Bad(Reason::kBadDtype, item.name, "its dtype is not known");
    item.dtype = *dtype;
    const auto dims = [&](const std::vector<int64_t>& column, size_t first) {
      return Shape(column.begin() + static_cast<int64_t>(first), column.begin() + static_cast<int64_t>(first + ndim));
    };
    item.global_shape = dims(schema.dims, first_dim[tensor]);
    item.box = {dims(columns.offsets, at), dims(columns.shapes, at)};
    at += ndim;
    for (int64_t dim : item.global_shape) {
      if (dim < 0) return Bad(Reason::kBadShape, item.name, "a negative dimension");
    }
    const auto elements = ElementCount(item.global_shape);
    if (!elements || *elements > INT64_MAX / BytesOf(*dtype)) {
      return Bad(Reason::kShapeOverflow, item.name, "it has 2^63 bytes or more");
    }
    if (!Contains(item.global_shape, item.box)) {
      return Bad(Reason::kShardOutOfBounds, item.name,
                 absl::StrCat("the shard ", ToString(item.box), " is outside ", ShapeToString(item.global_shape)));
    }
    if (flat < columns.flat_shards.size() && columns.flat_shards[flat] == i) {
      item.flat = FlatRange{columns.flat_begins[flat], columns.flat_ends[flat]};
      if (item.flat->begin < 0 || item.flat->end < item.flat->begin || item.flat->end > item.box.size()) {
        return Bad(Reason::kShardOutOfBounds, item.name, "a flat range outside its box");
      }
      ++flat;
    }
    items.push_back(std::move(item));
  }
  return absl::OkStatus();
}

absl::Status ReadItems(std::string_view bytes, uint32_t rank, RankLayout& layout) {
  LayoutColumns columns;
  if (!ParseLayout(bytes, columns)) return Malformed("the message does not parse");
  const std::optional<SchemaColumns> schema = ParseSchema(columns.schema);
  if (!schema.has_value()) return Malformed("its tensor schema cannot be read");
  layout.items.reserve(columns.shard_tensors.size() + columns.objects.size());
  CAIRN_RETURN_IF_ERROR(ReadShards(columns, *schema, layout.items));
  layout.shard_count = layout.items.size();
  for (const std::string_view declared : columns.objects) {
    const std::optional<ObjectFields> object = ParseObject(declared);
    if (!object.has_value()) return Malformed("an object's bytes cannot be read");
    const std::string name(object->name);
    CAIRN_RETURN_IF_ERROR(CheckName(name));
    if (!IsSlotSize(object->slot_bytes)) {
      return Malformed(absl::StrCat("the slot of object ", name, " has ", object->slot_bytes, " bytes"));
    }
    const auto slot = static_cast<int64_t>(object->slot_bytes);
    StoredItem item{.name = name, .dtype = DType::kUint8, .global_shape = {slot}, .box = {{0}, {slot}}};
    item.object = true;
    if (object->per_rank) item.object_rank = static_cast<int>(rank);
    layout.items.push_back(std::move(item));
  }
  for (const std::string_view declared : columns.aliases) {
    const std::optional<AliasFields> alias = ParseAlias(declared);
    if (!alias.has_value()) return Malformed("an alias's bytes cannot be read");
    layout.aliases.emplace_back(alias->name, alias->target);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<RankLayoutPtr> ParseRankLayout(std::string_view digest, std::string bytes, uint32_t rank) {
  if (bytes.size() > kMaxLayoutBytes) {
    return MakeError(Reason::kMessageTooLarge,
                     absl::StrCat("a layout of ", bytes.size(), " bytes; the limit is ", kMaxLayoutBytes));
  }
  if (Digest(bytes) != digest) return Malformed("its bytes do not have the digest that was given");
  auto layout = std::make_shared<RankLayout>();
  layout->digest = std::string(digest);
  layout->fault = ReadItems(bytes, rank, *layout);
  if (!layout->fault.ok()) {
    layout->items.clear();
    layout->shard_count = 0;
  }
  layout->bytes = std::move(bytes);
  return RankLayoutPtr(std::move(layout));
}

}  // namespace cairn

#include "agent/session/rank_layout.h"

#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cairn/v1/layout.pb.h"
#include "common/base/digest.h"
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

absl::Status ReadItems(const std::string& bytes, uint32_t rank, std::vector<StoredItem>& items, size_t& shard_count,
                       AliasList& aliases) {
  v1::Layout proto;
  v1::TensorSchema schema;
  if (!proto.ParseFromString(bytes)) return Malformed("the message does not parse");
  if (!schema.ParseFromString(proto.tensor_schema())) return Malformed("the tensor schema does not parse");
  const int tensors = schema.names_size();
  if (schema.dtypes_size() != tensors || schema.ndims_size() != tensors) {
    return Malformed("the columns of the tensor schema differ in length");
  }
  // Where each tensor's dimensions begin in global_dim.
  std::vector<size_t> first_dim(static_cast<size_t>(tensors) + 1, 0);
  for (int i = 0; i < tensors; ++i)
    first_dim[static_cast<size_t>(i) + 1] = first_dim[static_cast<size_t>(i)] + schema.ndims(i);
  if (first_dim.back() != static_cast<size_t>(schema.global_dims_size())) {
    return Malformed("the global shapes do not have the dimensions that the schema says");
  }
  if (proto.flat_begins_size() != proto.flat_shards_size() || proto.flat_ends_size() != proto.flat_shards_size()) {
    return Malformed("the columns of flat shards differ in length");
  }

  shard_count = static_cast<size_t>(proto.shard_tensors_size());
  items.reserve(shard_count + static_cast<size_t>(proto.objects_size()));
  size_t at = 0;
  int flat = 0;
  for (int i = 0; i < proto.shard_tensors_size(); ++i) {
    const uint32_t tensor = proto.shard_tensors(i);
    if (tensor >= static_cast<uint32_t>(tensors)) return Malformed("a shard of a tensor that the schema lacks");
    const size_t ndim = schema.ndims(static_cast<int>(tensor));
    if (static_cast<size_t>(proto.shard_offsets_size()) < at + ndim ||
        static_cast<size_t>(proto.shard_shapes_size()) < at + ndim) {
      return Malformed("the shards' offsets or shapes are too short");
    }
    StoredItem item;
    item.name = schema.names(static_cast<int>(tensor));
    CAIRN_RETURN_IF_ERROR(CheckName(item.name));
    const auto dtype = DTypeFromNumber(schema.dtypes(static_cast<int>(tensor)));
    if (!dtype) return Bad(Reason::kBadDtype, item.name, "its dtype is not known");
    item.dtype = *dtype;
    const auto dims = [&](const auto& column, size_t first) {
      return Shape(column.begin() + static_cast<int64_t>(first), column.begin() + static_cast<int64_t>(first + ndim));
    };
    item.global_shape = dims(schema.global_dims(), first_dim[tensor]);
    item.box = {dims(proto.shard_offsets(), at), dims(proto.shard_shapes(), at)};
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
    if (flat < proto.flat_shards_size() && proto.flat_shards(flat) == static_cast<uint32_t>(i)) {
      item.flat = FlatRange{proto.flat_begins(flat), proto.flat_ends(flat)};
      if (item.flat->begin < 0 || item.flat->end < item.flat->begin || item.flat->end > item.box.size()) {
        return Bad(Reason::kShardOutOfBounds, item.name, "a flat range outside its box");
      }
      ++flat;
    }
    items.push_back(std::move(item));
  }
  if (flat != proto.flat_shards_size()) return Malformed("flat shards are not ascending");
  if (static_cast<size_t>(proto.shard_offsets_size()) != at || static_cast<size_t>(proto.shard_shapes_size()) != at) {
    return Malformed("the shards' offsets or shapes are too long");
  }
  for (const v1::ObjectDeclaration& object : proto.objects()) {
    CAIRN_RETURN_IF_ERROR(CheckName(object.name()));
    if (object.slot_bytes() == 0 || object.slot_bytes() % 4096 != 0 || object.slot_bytes() > uint64_t{1} << 40) {
      return Malformed(absl::StrCat("the slot of object ", object.name(), " has ", object.slot_bytes(), " bytes"));
    }
    const int64_t slot = static_cast<int64_t>(object.slot_bytes());
    StoredItem item{.name = object.name(), .dtype = DType::kUint8, .global_shape = {slot}, .box = {{0}, {slot}}};
    item.object = true;
    if (object.per_rank()) item.object_rank = static_cast<int>(rank);
    items.push_back(std::move(item));
  }
  for (const v1::AliasDeclaration& alias : proto.aliases()) aliases.emplace_back(alias.name(), alias.target());
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
  layout->fault = ReadItems(bytes, rank, layout->items, layout->shard_count, layout->aliases);
  if (!layout->fault.ok()) {
    layout->items.clear();
    layout->shard_count = 0;
  }
  layout->bytes = std::move(bytes);
  return RankLayoutPtr(std::move(layout));
}

}  // namespace cairn

#include "planner/layout/layout_reader.h"

#include <algorithm>
#include <bit>
#include <optional>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "common/format/layout_columns.h"

namespace cairn {
namespace {

uint64_t Mix(uint64_t hash, uint64_t value) {
  hash = (hash ^ value) * 0x9e3779b97f4a7c15u;
  return hash ^ (hash >> 29);
}

uint32_t HashOf(uint32_t tensor, size_t ndim, const int64_t* offset, const int64_t* shape, bool flat, FlatRange range) {
  uint64_t hash = Mix(0x51ed270b, tensor);
  for (size_t d = 0; d < ndim; ++d) {
    hash = Mix(Mix(hash, static_cast<uint64_t>(offset[d])), static_cast<uint64_t>(shape[d]));
  }
  if (flat) hash = Mix(Mix(hash, static_cast<uint64_t>(range.begin)), static_cast<uint64_t>(range.end));
  return static_cast<uint32_t>(hash ^ hash >> 32);
}

std::vector<int64_t> ToVector(std::span<const int64_t> dims) { return {dims.begin(), dims.end()}; }

}  // namespace

struct LayoutSet::Reader::DeclaredTensor {
  std::string_view name;
  int dtype_number = 0;
  Shape global_shape;
  std::optional<DType> dtype;       // nothing if the number is unknown
  std::optional<int64_t> elements;  // nothing if there are too many, or a negative number in one dimension
};

LayoutSet::Reader::DeclaredTensor LayoutSet::Reader::Declare(std::string_view name, int dtype, Shape global_shape) {
  DeclaredTensor declared = {name, dtype, std::move(global_shape), DTypeFromNumber(dtype), std::nullopt};
  declared.elements = ElementCount(declared.global_shape);
  return declared;
}

std::optional<LayoutSet::Reader::TensorFault> LayoutSet::Reader::FaultOf(const DeclaredTensor& declared) {
  const Shape& shape = declared.global_shape;
  if (!declared.dtype) {
    return TensorFault{Reason::kBadDtype, absl::StrCat("has the unknown dtype number ", declared.dtype_number)};
  }
  if (std::any_of(shape.begin(), shape.end(), [](int64_t n) { return n < 0; })) {
    return TensorFault{Reason::kBadShape, absl::StrCat("has the negative global shape ", ShapeToString(shape))};
  }
  if (!declared.elements || *declared.elements > INT64_MAX / cairn::BytesOf(*declared.dtype)) {
    return TensorFault{Reason::kShapeOverflow,
                       absl::StrCat("of shape ", ShapeToString(shape), " has 2^63 bytes or more")};
  }
  return std::nullopt;
}

std::vector<std::string_view> LayoutSet::AddRanks(std::span<const RankInput> inputs, FaultList& faults) {
  std::vector<const RankInput*> sorted;
  for (const RankInput& input : inputs) sorted.push_back(&input);
  std::sort(sorted.begin(), sorted.end(), [](const auto* a, const auto* b) { return a->rank < b->rank; });
  absl::flat_hash_map<absl::string_view, uint32_t> layout_ids;
  absl::flat_hash_map<absl::string_view, uint32_t> node_ids;
  std::vector<std::string_view> layout_bytes;
  for (const RankInput* input : sorted) {
    if (!ranks_.empty() && ranks_.back() == input->rank) {
      faults.Add(
          {Reason::kRankConflict, "", {input->rank}, {}, {}, absl::StrCat("rank ", input->rank, " is given twice")});
      continue;
    }
    if (input->rank < 0) {
      faults.Add(
          {Reason::kRankOutOfRange, "", {input->rank}, {}, {}, absl::StrCat("rank ", input->rank, " is negative")});
      continue;
    }
    const auto [layout, is_new] =
        layout_ids.try_emplace(View(input->layout_digest), static_cast<uint32_t>(layouts_.size()));
    if (is_new) {
      layouts_.emplace_back();
      layout_digests_.emplace_back(input->layout_digest);
      layout_bytes.push_back(input->layout);
    }
    const auto node = node_ids.try_emplace(input->node, static_cast<uint32_t>(nodes_.size()));
    if (node.second) nodes_.push_back(input->node);
    layouts_[layout->second].rank_indices.push_back(static_cast<int>(ranks_.size()));
    ranks_.push_back(input->rank);
    rank_layouts_.push_back(layout->second);
    rank_nodes_.push_back(node.first->second);
  }
  return layout_bytes;
}

void LayoutSet::ReserveFor(std::span<const std::string_view> layout_bytes, ShardTable& table) {
  constexpr uint64_t kMostItems = uint64_t{1} << 23;  // vectors that grow further are copied
  if (table.shards.empty()) return;
  uint64_t bytes = 0;
  for (std::string_view layout : layout_bytes) bytes += layout.size();
  // Layouts of one job are much alike.
  const uint64_t items = std::min(kMostItems, bytes / layout_bytes[0].size() * table.items.size());
  table.items.reserve(items);
  table.shards.reserve(items);
  table.bytes.reserve(items);
  table.dims.reserve(std::min(8 * kMostItems, items * table.dims.size() / table.shards.size()));
}

LayoutSet::LayoutSet(std::span<const RankInput> inputs, FaultList& faults) {
  const std::vector<std::string_view> layout_bytes = AddRanks(inputs, faults);
  const auto table = std::make_shared<ShardTable>();
  table_ = table;
  {
    Reader reader(*this, table.get(), faults);
    for (uint32_t i = 0; i < layouts_.size(); ++i) {
      reader.Read(i, layout_bytes[i]);
      if (i == 0) ReserveFor(layout_bytes, *table);
    }
    SortNames(*table);
    reader.Finish();
  }
  SortShards(*table);
  holders_ = std::make_shared<const Holders>(FindHolders());
}

void LayoutSet::Reader::CheckName(uint32_t layout, std::string_view name) {
  const absl::Status status = cairn::CheckName(name);
  if (status.ok() || !bad_names_.insert(std::string(name)).second) return;
  const std::vector<int> ranks = RanksOfLayout(layout);
  faults_.Add({Reason::kBadName,
               MetadataOf(status)["name"],
               ranks,
               {},
               {},
               absl::StrCat(status.message(), " (", RanksText(ranks), ")")});
}

uint32_t LayoutSet::Reader::ReadSchema(uint32_t layout, std::string_view bytes) {
  const auto [known, is_new] = schema_ids_.try_emplace(View(bytes), static_cast<uint32_t>(schemas_.size()));
  const uint32_t id = known->second;
  if (!is_new) return id;
  Schema& schema = schemas_.emplace_back();
  shards_->schemas.emplace_back();
  std::optional<SchemaColumns> columns = ParseSchema(bytes);
  if (!columns.has_value()) {
    schema.bad = true;
    return id;
  }
  absl::flat_hash_set<uint32_t> seen;
  auto dims = columns->dims.begin();
  for (size_t i = 0; i < columns->names.size(); ++i) {
    const auto end = dims + columns->ndims[i];
    shards_->schemas[id].push_back(
        ReadTensor(layout, id, Declare(columns->names[i], columns->dtypes[i], Shape(dims, end)), seen));
    dims = end;
  }
  schema.ndims = std::move(columns->ndims);
  return id;
}

uint32_t LayoutSet::Reader::ReadTensor(uint32_t layout, uint32_t schema, const DeclaredTensor& declared,
                                       absl::flat_hash_set<uint32_t>& seen) {
  const auto known = tensor_ids_.find(View(declared.name));
  uint32_t tensor = kInvalidShard;
  if (known != tensor_ids_.end() && declared.dtype && declared.elements) {
    tensor = MatchTensor(known->second, schema, declared);
  } else {
    CheckName(layout, declared.name);
    if (CheckTensor(layout, declared)) tensor = AddTensor(schema, declared);
  }
  if (tensor == kInvalidShard || seen.insert(tensor).second) return tensor;
  const std::vector<int> ranks = RanksOfLayout(layout);
  faults_.Add({Reason::kNameCollision,
               std::string(declared.name),
               ranks,
               {},
               {},
               absl::StrCat("tensor ", View(declared.name), " is declared twice by ", RanksText(ranks))});
  return kInvalidShard;
}

bool LayoutSet::Reader::CheckTensor(uint32_t layout, const DeclaredTensor& declared) {
  const std::optional<TensorFault> fault = FaultOf(declared);
  if (!fault.has_value()) return true;
  const std::vector<int> ranks = RanksOfLayout(layout);
  faults_.Add({fault->reason,
               std::string(declared.name),
               ranks,
               {},
               ToVector(declared.global_shape),
               absl::StrCat("tensor ", View(declared.name), " of ", RanksText(ranks), " ", fault->what)});
  return false;
}

uint32_t LayoutSet::Reader::AddTensor(uint32_t schema, const DeclaredTensor& declared) {
  const auto tensor = static_cast<uint32_t>(shards_->tensors.size());
  tensor_ids_.emplace(std::string(declared.name), tensor);
  shards_->tensors.push_back({std::string(declared.name), *declared.dtype, declared.global_shape, *declared.elements});
  shards_->tensor_schema.push_back(schema);
  return tensor;
}

uint32_t LayoutSet::Reader::MatchTensor(uint32_t tensor, uint32_t schema, const DeclaredTensor& declared) {
  Tensor& first = shards_->tensors[tensor];
  if (first.dtype == *declared.dtype && first.global_shape == declared.global_shape) return tensor;
  conflicts_.push_back({tensor, schema, *declared.dtype, declared.global_shape});
  first.disputed = true;
  return kInvalidShard;  // its shards cannot be compared with those of the other schemas
}

void LayoutSet::Reader::Read(uint32_t layout, std::string_view bytes) {
  const bool valid = ParseLayout(bytes, columns_);
  set_.layouts_[layout].first_item = shards_->items.size();
  if (!valid) return Malformed(layout, "its bytes are no Layout message");
  const uint32_t schema = ReadSchema(layout, columns_.schema);
  set_.layouts_[layout].schema = schema;
  if (schemas_[schema].bad) {
    Malformed(layout, "its tensor schema cannot be read");
  } else {
    ReadShards(layout, schema);
  }
  ReadObjects(layout, columns_);
}

void LayoutSet::Reader::ReadObjects(uint32_t layout, const LayoutColumns& columns) {
  for (std::string_view object : columns.objects) ReadObject(layout, object);
  for (std::string_view alias : columns.aliases) ReadAlias(layout, alias);
}

LayoutSet::Reader::Extent LayoutSet::Reader::ExtentOf(const Tensor& tensor, const int64_t* offset, const int64_t* shape,
                                                      bool flat, FlatRange range) {
  Extent extent;
  for (size_t d = 0; d < tensor.global_shape.size(); ++d) {
    extent.inside &= offset[d] >= 0 && shape[d] >= 0 && shape[d] <= tensor.global_shape[d] &&
                     offset[d] <= tensor.global_shape[d] - shape[d];
    extent.elements = static_cast<int64_t>(static_cast<uint64_t>(extent.elements) * static_cast<uint64_t>(shape[d]));
  }
  if (flat) {
    extent.inside &= range.begin >= 0 && range.begin <= range.end && range.end <= extent.elements;
    extent.elements = range.size();
  }
  return extent;
}

void LayoutSet::Reader::ReadShards(uint32_t layout, uint32_t number) {
  const Schema& schema = schemas_[number];
  const std::vector<uint32_t>& tensors = shards_->schemas[number];
  if (const auto contradiction = ContradictionOf(columns_, schema.ndims); contradiction.has_value()) {
    return Malformed(layout, *contradiction);
  }
  set_.layouts_[layout].shards = static_cast<uint32_t>(columns_.shard_tensors.size());
  set_.layouts_[layout].first_shard = static_cast<uint32_t>(shards_->shards.size());
  pending_.clear();
  size_t dim = 0;
  size_t flat = 0;
  for (size_t i = 0; i < columns_.shard_tensors.size(); ++i) {
    Pending shard{0, tensors[columns_.shard_tensors[i]], static_cast<uint32_t>(dim), {}, 0, false};
    const size_t ndim = schema.ndims[columns_.shard_tensors[i]];
    const int64_t* offset = columns_.offsets.data() + dim;
    const int64_t* shape = columns_.shapes.data() + dim;
    dim += ndim;
    if (flat < columns_.flat_shards.size() && columns_.flat_shards[flat] == i) {
      shard.flat = true;
      shard.range = {columns_.flat_begins[flat], columns_.flat_ends[flat]};
      ++flat;
    }
    if (shard.tensor == kInvalidShard) {
      pending_.push_back(shard);
      continue;
    }
    const Tensor& tensor = shards_->tensors[shard.tensor];
    const auto [inside, elements] = ExtentOf(tensor, offset, shape, shard.flat, shard.range);
    shard.hash = HashOf(shard.tensor, ndim, offset, shape, shard.flat, shard.range);
    if (!inside) {
      const std::vector<int> ranks = RanksOfLayout(layout);
      const bool negative = std::any_of(offset, offset + ndim, [](int64_t n) { return n < 0; }) ||
                            std::any_of(shape, shape + ndim, [](int64_t n) { return n < 0; });
      std::string what = absl::StrCat("a shard of ", tensor.name, " held by ", RanksText(ranks), " has offset ",
                                      ShapeToString({offset, ndim}), " and shape ", ShapeToString({shape, ndim}));
      if (shard.flat) absl::StrAppend(&what, " and flat range [", shard.range.begin, ", ", shard.range.end, ")");
      absl::StrAppend(&what, negative ? ", which is negative" : ", which reaches outside", " of the global shape ",
                      ShapeToString(tensor.global_shape));
      faults_.Add({negative ? Reason::kBadShape : Reason::kShardOutOfBounds, tensor.name, ranks,
                   ToVector({offset, ndim}), ToVector({shape, ndim}), what});
      shards_->tensors[shard.tensor].disputed = true;
      shard.tensor = kInvalidShard;
    } else {
      shard.bytes = static_cast<uint64_t>(elements) * static_cast<uint64_t>(cairn::BytesOf(tensor.dtype));
    }
    __builtin_prefetch(&table_[shard.hash & mask_]);
    pending_.push_back(shard);
  }
  for (const Pending& shard : pending_) {
    if (shard.tensor == kInvalidShard) {
      shards_->items.push_back(kInvalidShard);
    } else if (shard.bytes == 0) {
      shards_->items.push_back(kEmptyShard);
    } else {
      const size_t ndim = shards_->tensors[shard.tensor].global_shape.size();
      shards_->items.push_back(Intern(shard.hash, shard.tensor, ndim, columns_.offsets.data() + shard.dims,
                                      columns_.shapes.data() + shard.dims, shard.flat, shard.range, shard.bytes));
    }
  }
  set_.layouts_[layout].end_shard = static_cast<uint32_t>(shards_->shards.size());
}

uint32_t LayoutSet::Reader::Intern(uint32_t hash, uint32_t tensor, size_t ndim, const int64_t* offset,
                                   const int64_t* shape, bool flat, FlatRange range, uint64_t bytes) {
  uint32_t slot = hash & mask_;
  for (; table_[slot].first != 0; slot = (slot + 1) & mask_) {
    if (table_[slot].second != hash) continue;
    const uint32_t shard = table_[slot].first - 1;
    const Shard& known = shards_->shards[shard];
    if (known.tensor != tensor || known.flat != static_cast<uint32_t>(flat)) continue;
    const int64_t* dims = shards_->dims.data() + known.dims;
    if (std::equal(offset, offset + ndim, dims) && std::equal(shape, shape + ndim, dims + ndim) &&
        (!flat || (dims[2 * ndim] == range.begin && dims[2 * ndim + 1] == range.end))) {
      return shard;
    }
  }
  const auto shard = static_cast<uint32_t>(shards_->shards.size());
  shards_->shards.push_back({tensor, static_cast<uint32_t>(shards_->dims.size()) & 0x7fffffff, flat});
  shards_->bytes.push_back(bytes);
  shards_->dims.insert(shards_->dims.end(), offset, offset + ndim);
  shards_->dims.insert(shards_->dims.end(), shape, shape + ndim);
  if (flat) {
    shards_->dims.push_back(range.begin);
    shards_->dims.push_back(range.end);
  }
  table_[slot] = {shard + 1, hash};
  if (shards_->shards.size() * 2 > table_.size()) GrowTable();
  return shard;
}

void LayoutSet::Reader::GrowTable() {
  const std::vector<std::pair<uint32_t, uint32_t>> old = std::move(table_);
  table_.assign(old.size() * 2, {0, 0});
  mask_ = static_cast<uint32_t>(table_.size() - 1);
  // Places ascend with the hashes, so the loop writes two runs of neighbours.
  for (const auto& [shard, hash] : old) {
    if (shard == 0) continue;
    uint32_t slot = hash & mask_;
    while (table_[slot].first != 0) slot = (slot + 1) & mask_;
    table_[slot] = {shard, hash};
  }
}

void LayoutSet::Reader::ReadObject(uint32_t layout, std::string_view bytes) {
  const std::optional<ObjectFields> fields = ParseObject(bytes);
  if (!fields.has_value()) return Malformed(layout, "an object's bytes cannot be read");
  AddObject(layout, *fields);
}

void LayoutSet::Reader::AddObject(uint32_t layout, const ObjectFields& fields) {
  const auto [name, slot, per_rank, content, number] = fields;
  // A wish that only a later version knows counts as kWhole, so the load is refused if the object is missing.
  const Wish wish = number <= static_cast<uint32_t>(Wish::kPlace) ? static_cast<Wish>(number) : Wish::kWhole;
  CheckName(layout, name);
  if (!IsSlotSize(slot)) {
    const std::vector<int> ranks = RanksOfLayout(layout);
    faults_.Add({Reason::kBadRequest,
                 std::string(name),
                 ranks,
                 {},
                 {},
                 absl::StrCat("object ", View(name), " of ", RanksText(ranks), " has a slot of ", slot,
                              " bytes, which is no multiple of 4096 up to 1 TiB")});
    return;
  }
  const auto [found, is_new] = object_ids_.try_emplace(View(name), static_cast<uint32_t>(set_.objects_.size()));
  if (is_new) {
    set_.objects_.push_back({std::string(name), per_rank, slot, wish, std::string(content)});
    object_layout_.push_back(layout);
    object_conflicts_.emplace_back();
  }
  const uint32_t object = found->second;
  set_.objects_[object].wish = std::min(set_.objects_[object].wish, wish);
  std::vector<ObjectItem>& items = set_.layouts_[layout].objects;
  const bool twice =
      std::any_of(items.begin(), items.end(), [&](const ObjectItem& item) { return item.object == object; });
  if (twice) {
    const std::vector<int> ranks = RanksOfLayout(layout);
    faults_.Add({Reason::kNameCollision,
                 std::string(name),
                 ranks,
                 {},
                 {},
                 absl::StrCat("object ", View(name), " is declared twice by ", RanksText(ranks))});
    return;
  }
  items.push_back({object, wish, slot});
  const Object& first = set_.objects_[object];
  using Kind = ObjectConflict::Kind;
  if (first.per_rank != per_rank) {
    object_conflicts_[object].push_back({layout, Kind::kPerRank});
  } else if (!per_rank && first.slot_bytes != slot) {
    object_conflicts_[object].push_back({layout, Kind::kSlot});
  } else if (!per_rank && first.content_digest != content) {
    object_conflicts_[object].push_back({layout, Kind::kContent});
  }
}

void LayoutSet::Reader::AddKnownObject(uint32_t layout, const ObjectItem& item, const Object& object,
                                       uint32_t& number) {
  if (number == kInvalidShard) {
    AddObject(layout,
              {object.name, item.slot_bytes, object.per_rank, object.content_digest, static_cast<uint32_t>(item.wish)});
    number = object_ids_.at(object.name);
    return;
  }
  set_.objects_[number].wish = std::min(set_.objects_[number].wish, item.wish);
  set_.layouts_[layout].objects.push_back({number, item.wish, item.slot_bytes});
}

void LayoutSet::Reader::ReadAlias(uint32_t layout, std::string_view bytes) {
  const std::optional<AliasFields> fields = ParseAlias(bytes);
  if (!fields.has_value()) return Malformed(layout, "an alias's bytes cannot be read");
  CheckName(layout, fields->name);
  AddAlias(layout, std::string(fields->name), std::string(fields->target));
}

void LayoutSet::Reader::AddAlias(uint32_t layout, std::string name, std::string target) {
  set_.layouts_[layout].aliases.emplace_back(name, target);
  aliases_.push_back({std::move(name), std::move(target), layout});
}

}  // namespace cairn

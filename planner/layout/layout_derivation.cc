// Makes a set of layouts from another one whose tensors and shards are the same.
#include <algorithm>
#include <utility>

#include "planner/layout/layout_reader.h"

namespace cairn {
namespace {

// Walks over the shards of a layout's columns.
class ShardColumns {
 public:
  ShardColumns(const LayoutColumns& columns, std::span<const uint32_t> ndims) : columns_(columns), ndims_(ndims) {}

  size_t count() const { return columns_.shard_tensors.size(); }
  // The columns of the shard that the walk has come to.
  uint32_t tensor() const { return columns_.shard_tensors[shard_]; }  // an index into the schema
  size_t ndim() const { return ndims_[tensor()]; }
  const int64_t* offset() const { return columns_.offsets.data() + dim_; }
  const int64_t* shape() const { return columns_.shapes.data() + dim_; }
  bool flat() const { return flat_ < columns_.flat_shards.size() && columns_.flat_shards[flat_] == shard_; }
  FlatRange range() const {
    return flat() ? FlatRange{columns_.flat_begins[flat_], columns_.flat_ends[flat_]} : FlatRange{};
  }
  void Advance() {
    dim_ += ndim();
    if (flat()) ++flat_;
    ++shard_;
  }

 private:
  const LayoutColumns& columns_;
  std::span<const uint32_t> ndims_;
  size_t shard_ = 0;
  size_t dim_ = 0;
  size_t flat_ = 0;
};

}  // namespace

class LayoutSet::Deriver {
 public:
  Deriver(const LayoutSet& before, LayoutSet& set, Reader& reader)
      : before_(before),
        set_(set),
        reader_(reader),
        object_numbers_(before.objects_.size(), kInvalidShard),
        schema_seen_(before.table_->schemas.size()) {
    for (uint32_t i = 0; i < before_.layouts_.size(); ++i) known_.emplace(View(before_.layout_digests_[i]), i);
  }

  // Returns false if tensors or shards differ from those of `before`.
  bool Derive(std::span<const std::string_view> layout_bytes) {
    if (set_.ranks_ != before_.ranks_ || before_.tensors().empty()) return false;
    bool same_holders = set_.layouts_.size() == before_.layouts_.size();
    for (uint32_t i = 0; i < set_.layouts_.size(); ++i) {
      const auto known = known_.find(View(set_.layout_digests_[i]));
      uint32_t like = 0;  // the layout of `before` that has the same shards
      if (known != known_.end()) {
        like = known->second;
        Reuse(i, like);
      } else {
        like = before_.rank_layouts_[static_cast<size_t>(set_.layouts_[i].rank_indices[0])];
        if (!Read(i, layout_bytes[i], like)) return false;
      }
      if (!TakeShards(i, before_.layouts_[like])) return false;
      same_holders &= like == i;
    }
    if (seen_shards_ != before_.shard_count() || seen_schemas_ != before_.table_->schemas.size()) return false;
    set_.holders_ = same_holders ? before_.holders_ : std::make_shared<const Holders>(set_.FindHolders());
    return true;
  }

 private:
  // Returns false if a shard would be seen first in another order, and would so have another number.
  bool TakeShards(uint32_t layout, const Layout& from) {
    Layout& to = set_.layouts_[layout];
    to.first_item = from.first_item;
    to.shards = from.shards;
    to.schema = from.schema;
    to.first_shard = seen_shards_;
    if (seen_shards_ == from.first_shard) {
      seen_shards_ = from.end_shard;
    } else {
      for (const uint32_t shard : before_.ItemsOf(from)) {
        if (shard >= kInvalidShard || shard < seen_shards_) continue;
        if (shard != seen_shards_++) return false;
      }
    }
    to.end_shard = seen_shards_;
    if (!schema_seen_[from.schema]) ++seen_schemas_;
    schema_seen_[from.schema] = true;
    return true;
  }

  void Reuse(uint32_t layout, uint32_t known) {
    const Layout& from = before_.layouts_[known];
    set_.layouts_[layout].objects.reserve(from.objects.size());
    for (const ObjectItem& item : from.objects) {
      reader_.AddKnownObject(layout, item, before_.objects_[item.object], object_numbers_[item.object]);
    }
    for (const auto& [name, target] : from.aliases) reader_.AddAlias(layout, name, target);
  }

  bool Read(uint32_t layout, std::string_view bytes, uint32_t like) {
    const Layout& from = before_.layouts_[like];
    if (!ParseLayout(bytes, columns_) || !HasSchema(columns_.schema, from.schema) || !HasShards(from)) return false;
    reader_.ReadObjects(layout, columns_);
    return true;
  }

  // Returns whether these bytes are a schema of `before`. Then ndims_ is its.
  bool HasSchema(std::string_view bytes, uint32_t schema) {
    if (schema == read_schema_ && bytes == read_schema_bytes_) return true;
    const std::optional<SchemaColumns> columns = ParseSchema(bytes);
    const std::vector<uint32_t>& tensors = before_.table_->schemas[schema];
    if (!columns.has_value() || columns->names.size() != tensors.size()) return false;
    auto dims = columns->dims.begin();
    for (size_t i = 0; i < tensors.size(); ++i) {
      const Tensor& tensor = before_.tensors()[tensors[i]];
      const auto end = dims + columns->ndims[i];
      if (tensor.name != columns->names[i] || DTypeFromNumber(columns->dtypes[i]) != tensor.dtype ||
          !std::equal(dims, end, tensor.global_shape.begin(), tensor.global_shape.end())) {
        return false;
      }
      dims = end;
    }
    ndims_ = columns->ndims;
    read_schema_ = schema;
    read_schema_bytes_ = bytes;
    return true;
  }

  // Returns whether columns_ has the shards of a layout of `before` in the same order.
  bool HasShards(const Layout& from) const {
    if (ContradictionOf(columns_, ndims_).has_value() || columns_.shard_tensors.size() != from.shards) return false;
    const std::vector<uint32_t>& tensors = before_.table_->schemas[from.schema];
    ShardColumns shard(columns_, ndims_);
    for (const uint32_t known : before_.ItemsOf(from)) {
      const uint32_t tensor = tensors[shard.tensor()];
      const auto [inside, elements] =
          Reader::ExtentOf(before_.tensors()[tensor], shard.offset(), shard.shape(), shard.flat(), shard.range());
      if (!inside || (elements == 0) != (known == kEmptyShard)) return false;
      if (elements != 0 && !IsShard(shard, known, tensor)) return false;
      shard.Advance();
    }
    return true;
  }

  bool IsShard(const ShardColumns& shard, uint32_t known, uint32_t tensor) const {
    if (before_.TensorOf(known) != tensor || before_.IsFlat(known) != shard.flat()) return false;
    const size_t ndim = shard.ndim();
    const int64_t* dims = before_.DimsOf(known);
    return std::equal(dims, dims + ndim, shard.offset()) && std::equal(dims + ndim, dims + 2 * ndim, shard.shape()) &&
           (!shard.flat() || shard.range() == FlatRange{dims[2 * ndim], dims[2 * ndim + 1]});
  }

  const LayoutSet& before_;
  LayoutSet& set_;
  Reader& reader_;
  absl::flat_hash_map<absl::string_view, uint32_t> known_;  // by digest: a layout of before_
  std::vector<uint32_t> object_numbers_;                    // by number in before_
  uint32_t seen_shards_ = 0;                                // those of the layouts so far
  std::vector<bool> schema_seen_;
  size_t seen_schemas_ = 0;
  LayoutColumns columns_;  // the layout that is being read
  // The schema that was read last. Most layouts that change have the same.
  uint32_t read_schema_ = kInvalidShard;
  std::string_view read_schema_bytes_;
  std::vector<uint32_t> ndims_;
};

std::optional<LayoutSet> LayoutSet::Derive(const LayoutSet& before, std::span<const RankInput> inputs) {
  LayoutSet set;
  FaultList faults;
  const std::vector<std::string_view> layout_bytes = set.AddRanks(inputs, faults);
  if (!faults.empty()) return std::nullopt;
  set.table_ = before.table_;
  Reader reader(set, nullptr, faults);
  if (!Deriver(before, set, reader).Derive(layout_bytes)) return std::nullopt;
  reader.Finish();
  return faults.empty() ? std::optional(std::move(set)) : std::nullopt;
}

}  // namespace cairn

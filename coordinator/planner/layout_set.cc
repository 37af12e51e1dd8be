#include "coordinator/planner/layout_set.h"

#include <algorithm>
#include <bit>
#include <map>
#include <numeric>
#include <set>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "coordinator/planner/wire.h"

namespace cairn {
namespace {

absl::string_view View(std::string_view text) { return {text.data(), text.size()}; }

uint64_t Mix(uint64_t hash, uint64_t value) {
  hash = (hash ^ value) * 0x9e3779b97f4a7c15u;
  return hash ^ (hash >> 29);
}

// Shapes come from peers: an absurd number of dimensions is refused before anything is built on it.
constexpr uint32_t kMaxDimensions = 64;
constexpr uint64_t kMaxSlotBytes = uint64_t{1} << 40;

std::vector<int64_t> ToVector(std::span<const int64_t> dims) { return {dims.begin(), dims.end()}; }

std::string RanksText(std::span<const int> ranks) {
  return absl::StrCat(ranks.size() == 1 ? "rank " : "ranks ", JoinRanks(ranks));
}

}  // namespace

// Reads layouts into a set. Its tables are needed only meanwhile.
class LayoutSet::Reader {
 public:
  Reader(LayoutSet& set, FaultList& faults) : set_(set), faults_(faults) { GrowTable(1024); }

  void Read(uint32_t layout, std::string_view bytes);
  // Disagreements between layouts, told once for each name; names, aliases.
  void Finish();

 private:
  struct Schema {
    std::vector<uint32_t> tensors;  // by index of the schema; kInvalidShard for an unusable one
    std::vector<uint32_t> ndims;
    bool bad = false;
  };
  struct Conflict {
    uint32_t tensor;
    uint32_t schema;
    DType dtype;
    Shape global_shape;
  };
  struct AliasDeclaration {
    std::string name;
    std::string target;
    uint32_t layout;
  };

  const std::vector<int> RanksOfLayout(uint32_t layout) const {
    std::vector<int> ranks;
    for (int index : set_.layouts_[layout].rank_indices) ranks.push_back(set_.ranks_[static_cast<size_t>(index)]);
    return ranks;
  }
  void Malformed(uint32_t layout, std::string_view what) {
    const std::vector<int> ranks = RanksOfLayout(layout);
    set_.complete_ = false;
    faults_.Add({Reason::kBadRequest,
                 "",
                 ranks,
                 {},
                 {},
                 absl::StrCat("the layout of ", RanksText(ranks), " is malformed: ", View(what))});
  }
  uint32_t ReadSchema(uint32_t layout, std::string_view bytes);
  void ReadShards(uint32_t layout, const Schema& schema);
  void ReadObject(uint32_t layout, std::string_view bytes);
  void ReadAlias(uint32_t layout, std::string_view bytes);
  void CheckName(uint32_t layout, std::string_view name);
  uint32_t Intern(uint64_t hash, uint32_t tensor, size_t ndim, const int64_t* offset, const int64_t* shape, bool flat,
                  FlatRange range, uint64_t bytes);
  void GrowTable(size_t size);
  void FinishConflicts();
  void FinishNames();
  void FinishAliases();

  LayoutSet& set_;
  FaultList& faults_;
  absl::flat_hash_map<absl::string_view, uint32_t> schema_ids_;  // views of the callers' bytes
  std::vector<Schema> schemas_;
  absl::flat_hash_map<std::string, uint32_t> tensor_ids_;
  absl::flat_hash_map<std::string, uint32_t> object_ids_;
  absl::flat_hash_set<std::string> bad_names_;
  std::vector<uint32_t> tensor_schema_;  // that a tensor was first seen in
  std::vector<uint32_t> object_layout_;  // that an object was first seen in
  std::vector<std::vector<uint32_t>> object_conflicts_;
  std::vector<Conflict> conflicts_;
  std::vector<AliasDeclaration> aliases_;

  // Hash table of the distinct shards: number + 1 and 32 bits of the hash.
  std::vector<std::pair<uint32_t, uint32_t>> table_;
  uint64_t mask_ = 0;

  // Columns of the layout that is being read.
  std::vector<uint32_t> shard_tensor_, flat_shard_;
  std::vector<int64_t> offset_, shape_, flat_begin_, flat_end_;
  struct Pending {
    uint64_t hash;
    uint32_t tensor;
    uint32_t dims;
    FlatRange range;
    uint64_t bytes;  // 0: empty; the shard is kInvalidShard if tensor is
    bool flat;
  };
  std::vector<Pending> pending_;
};

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
  const auto [found, is_new] = schema_ids_.try_emplace(View(bytes), static_cast<uint32_t>(schemas_.size()));
  if (!is_new) return found->second;
  const auto id = static_cast<uint32_t>(schemas_.size());
  Schema& schema = schemas_.emplace_back();
  std::vector<std::string_view> names;
  std::vector<int> dtypes;
  std::vector<uint32_t> ndims;
  std::vector<int64_t> dims;
  WireReader reader(bytes);
  bool sound = true;
  while (const uint32_t field = reader.NextField()) {
    switch (field) {
      case 1:
        if (!reader.is_bytes()) sound = false;
        names.push_back(reader.bytes());
        break;
      case 2:
        sound &= AppendNumbers(reader, dtypes);
        break;
      case 3:
        sound &= AppendNumbers(reader, ndims);
        break;
      case 4:
        sound &= AppendNumbers(reader, dims);
        break;
      default:
        break;
    }
  }
  uint64_t total_dims = 0;
  for (uint32_t ndim : ndims) {
    if (ndim > kMaxDimensions) sound = false;
    total_dims += ndim;
  }
  if (!sound || !reader.ok() || dtypes.size() != names.size() || ndims.size() != names.size() ||
      total_dims != dims.size()) {
    schema.bad = true;
    return id;
  }
  schema.ndims = ndims;
  size_t dim = 0;
  absl::flat_hash_set<uint32_t> seen;
  for (size_t i = 0; i < names.size(); ++i) {
    const Shape global_shape(dims.begin() + static_cast<std::ptrdiff_t>(dim),
                             dims.begin() + static_cast<std::ptrdiff_t>(dim + ndims[i]));
    dim += ndims[i];
    const auto dtype = DTypeFromNumber(dtypes[i]);
    const auto elements = ElementCount(global_shape);
    const auto known = tensor_ids_.find(View(names[i]));
    schema.tensors.push_back(kInvalidShard);
    if (known == tensor_ids_.end() || !dtype || !elements) {
      CheckName(layout, names[i]);
      const std::vector<int> ranks = RanksOfLayout(layout);
      const auto fault = [&](Reason reason, std::string_view what) {
        faults_.Add({reason,
                     std::string(names[i]),
                     ranks,
                     {},
                     ToVector(global_shape),
                     absl::StrCat("tensor ", View(names[i]), " of ", RanksText(ranks), " ", View(what))});
      };
      if (!dtype) {
        fault(Reason::kBadDtype, absl::StrCat("has the unknown dtype number ", dtypes[i]));
        continue;
      }
      if (std::any_of(global_shape.begin(), global_shape.end(), [](int64_t n) { return n < 0; })) {
        fault(Reason::kBadShape, absl::StrCat("has the negative global shape ", ShapeToString(global_shape)));
        continue;
      }
      if (!elements || *elements > INT64_MAX / cairn::BytesOf(*dtype)) {
        fault(Reason::kShapeOverflow,
              absl::StrCat("of shape ", ShapeToString(global_shape), " has 2^63 bytes or more"));
        continue;
      }
    }
    uint32_t tensor;
    if (known == tensor_ids_.end()) {
      tensor = static_cast<uint32_t>(set_.tensors_.size());
      tensor_ids_.emplace(std::string(names[i]), tensor);
      set_.tensors_.push_back({std::string(names[i]), *dtype, global_shape, *elements});
      tensor_schema_.push_back(id);
    } else {
      tensor = known->second;
      const Tensor& first = set_.tensors_[tensor];
      if (first.dtype != *dtype || first.global_shape != global_shape) {
        conflicts_.push_back({tensor, id, *dtype, global_shape});
        set_.tensors_[tensor].disputed = true;
        continue;  // its shards cannot be compared with the others'
      }
    }
    if (!seen.insert(tensor).second) {
      const std::vector<int> ranks = RanksOfLayout(layout);
      faults_.Add({Reason::kNameCollision,
                   std::string(names[i]),
                   ranks,
                   {},
                   {},
                   absl::StrCat("tensor ", View(names[i]), " is declared twice by ", RanksText(ranks))});
      continue;
    }
    schema.tensors.back() = tensor;
  }
  return id;
}

void LayoutSet::Reader::Read(uint32_t layout, std::string_view bytes) {
  shard_tensor_.clear();
  flat_shard_.clear();
  offset_.clear();
  shape_.clear();
  flat_begin_.clear();
  flat_end_.clear();
  std::string_view schema_bytes;
  bool sound = true;
  WireReader reader(bytes);
  std::vector<std::string_view> objects, aliases;
  while (const uint32_t field = reader.NextField()) {
    switch (field) {
      case 1:
        sound &= reader.is_bytes();
        schema_bytes = reader.bytes();
        break;
      case 2:
        sound &= AppendNumbers(reader, shard_tensor_);
        break;
      case 3:
        sound &= AppendNumbers(reader, offset_);
        break;
      case 4:
        sound &= AppendNumbers(reader, shape_);
        break;
      case 5:
        sound &= AppendNumbers(reader, flat_shard_);
        break;
      case 6:
        sound &= AppendNumbers(reader, flat_begin_);
        break;
      case 7:
        sound &= AppendNumbers(reader, flat_end_);
        break;
      case 8:
        sound &= reader.is_bytes();
        objects.push_back(reader.bytes());
        break;
      case 9:
        sound &= reader.is_bytes();
        aliases.push_back(reader.bytes());
        break;
      default:
        break;
    }
  }
  set_.layouts_[layout].first_item = set_.items_.size();
  if (!sound || !reader.ok()) return Malformed(layout, "its bytes are no Layout message");
  const uint32_t schema = ReadSchema(layout, schema_bytes);
  set_.layouts_[layout].schema = schema;
  if (schemas_[schema].bad) {
    Malformed(layout, "its tensor schema cannot be read");
  } else {
    ReadShards(layout, schemas_[schema]);
  }
  for (std::string_view object : objects) ReadObject(layout, object);
  for (std::string_view alias : aliases) ReadAlias(layout, alias);
}

void LayoutSet::Reader::ReadShards(uint32_t layout, const Schema& schema) {
  // Columns that do not fit make every later number meaningless.
  size_t total = 0;
  for (uint32_t index : shard_tensor_) {
    if (index >= schema.tensors.size()) return Malformed(layout, "a shard names a tensor outside the schema");
    total += schema.ndims[index];
  }
  set_.layouts_[layout].shards = static_cast<uint32_t>(shard_tensor_.size());
  if (offset_.size() != total || shape_.size() != total) {
    set_.layouts_[layout].shards = 0;
    return Malformed(layout, "offsets or shapes do not fit the shards' dimensions");
  }
  if (flat_begin_.size() != flat_shard_.size() || flat_end_.size() != flat_shard_.size()) {
    set_.layouts_[layout].shards = 0;
    return Malformed(layout, "flat ranges do not fit their shards");
  }
  for (size_t i = 0; i < flat_shard_.size(); ++i) {
    if (flat_shard_[i] >= shard_tensor_.size() || (i > 0 && flat_shard_[i] <= flat_shard_[i - 1])) {
      set_.layouts_[layout].shards = 0;
      return Malformed(layout, "flat shards are not ascending");
    }
  }
  pending_.clear();
  size_t dim = 0;
  size_t flat = 0;
  for (size_t i = 0; i < shard_tensor_.size(); ++i) {
    Pending shard{0, schema.tensors[shard_tensor_[i]], static_cast<uint32_t>(dim), {}, 0, false};
    const size_t ndim = schema.ndims[shard_tensor_[i]];
    const int64_t* offset = offset_.data() + dim;
    const int64_t* shape = shape_.data() + dim;
    dim += ndim;
    if (flat < flat_shard_.size() && flat_shard_[flat] == i) {
      shard.flat = true;
      shard.range = {flat_begin_[flat], flat_end_[flat]};
      ++flat;
    }
    if (shard.tensor == kInvalidShard) {
      pending_.push_back(shard);
      continue;
    }
    const Tensor& tensor = set_.tensors_[shard.tensor];
    bool inside = true;
    int64_t elements = 1;
    uint64_t hash = Mix(0x51ed270b, shard.tensor);
    for (size_t d = 0; d < ndim; ++d) {
      inside &= offset[d] >= 0 && shape[d] >= 0 && shape[d] <= tensor.global_shape[d] &&
                offset[d] <= tensor.global_shape[d] - shape[d];
      elements = static_cast<int64_t>(static_cast<uint64_t>(elements) * static_cast<uint64_t>(shape[d]));
      hash = Mix(Mix(hash, static_cast<uint64_t>(offset[d])), static_cast<uint64_t>(shape[d]));
    }
    if (shard.flat) {
      hash = Mix(Mix(hash, static_cast<uint64_t>(shard.range.begin)), static_cast<uint64_t>(shard.range.end));
      inside = inside && shard.range.begin >= 0 && shard.range.begin <= shard.range.end && shard.range.end <= elements;
      elements = shard.range.size();
    }
    shard.hash = Mix(hash, hash >> 32);
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
      set_.tensors_[shard.tensor].disputed = true;
      shard.tensor = kInvalidShard;
    } else {
      shard.bytes = static_cast<uint64_t>(elements) * static_cast<uint64_t>(cairn::BytesOf(tensor.dtype));
    }
    __builtin_prefetch(&table_[shard.hash & mask_]);
    pending_.push_back(shard);
  }
  for (const Pending& shard : pending_) {
    if (shard.tensor == kInvalidShard) {
      set_.items_.push_back(kInvalidShard);
    } else if (shard.bytes == 0) {
      set_.items_.push_back(kEmptyShard);
    } else {
      const size_t ndim = set_.tensors_[shard.tensor].global_shape.size();
      set_.items_.push_back(Intern(shard.hash, shard.tensor, ndim, offset_.data() + shard.dims,
                                   shape_.data() + shard.dims, shard.flat, shard.range, shard.bytes));
    }
  }
}

uint32_t LayoutSet::Reader::Intern(uint64_t hash, uint32_t tensor, size_t ndim, const int64_t* offset,
                                   const int64_t* shape, bool flat, FlatRange range, uint64_t bytes) {
  const auto tag = static_cast<uint32_t>(hash >> 32);
  uint64_t slot = hash & mask_;
  for (; table_[slot].first != 0; slot = (slot + 1) & mask_) {
    if (table_[slot].second != tag) continue;
    const uint32_t shard = table_[slot].first - 1;
    const Shard& known = set_.shards_[shard];
    if (known.tensor != tensor || known.flat != static_cast<uint32_t>(flat)) continue;
    const int64_t* dims = set_.dims_.data() + known.dims;
    if (std::equal(offset, offset + ndim, dims) && std::equal(shape, shape + ndim, dims + ndim) &&
        (!flat || (dims[2 * ndim] == range.begin && dims[2 * ndim + 1] == range.end))) {
      return shard;
    }
  }
  const auto shard = static_cast<uint32_t>(set_.shards_.size());
  set_.shards_.push_back({tensor, static_cast<uint32_t>(set_.dims_.size()) & 0x7fffffff, flat});
  set_.bytes_.push_back(bytes);
  set_.dims_.insert(set_.dims_.end(), offset, offset + ndim);
  set_.dims_.insert(set_.dims_.end(), shape, shape + ndim);
  if (flat) {
    set_.dims_.push_back(range.begin);
    set_.dims_.push_back(range.end);
  }
  table_[slot] = {shard + 1, tag};
  if (set_.shards_.size() * 2 > table_.size()) GrowTable(table_.size() * 4);
  return shard;
}

void LayoutSet::Reader::GrowTable(size_t size) {
  std::vector<std::pair<uint32_t, uint32_t>> old = std::move(table_);
  table_.assign(std::bit_ceil(size), {0, 0});
  mask_ = table_.size() - 1;
  // The low bits of the hash are not kept, so they are computed anew.
  for (uint32_t shard = 0; shard < set_.shards_.size(); ++shard) {
    const Shard& known = set_.shards_[shard];
    const size_t ndim = set_.tensors_[known.tensor].global_shape.size();
    const int64_t* dims = set_.dims_.data() + known.dims;
    uint64_t hash = Mix(0x51ed270b, known.tensor);
    for (size_t d = 0; d < ndim; ++d) {
      hash = Mix(Mix(hash, static_cast<uint64_t>(dims[d])), static_cast<uint64_t>(dims[ndim + d]));
    }
    if (known.flat) {
      hash = Mix(Mix(hash, static_cast<uint64_t>(dims[2 * ndim])), static_cast<uint64_t>(dims[2 * ndim + 1]));
    }
    hash = Mix(hash, hash >> 32);
    uint64_t slot = hash & mask_;
    while (table_[slot].first != 0) slot = (slot + 1) & mask_;
    table_[slot] = {shard + 1, static_cast<uint32_t>(hash >> 32)};
  }
}

void LayoutSet::Reader::ReadObject(uint32_t layout, std::string_view bytes) {
  std::string_view name;
  uint64_t slot = 0;
  bool per_rank = false;
  WireReader reader(bytes);
  while (const uint32_t field = reader.NextField()) {
    if (field == 1 && reader.is_bytes()) name = reader.bytes();
    if (field == 2 && !reader.is_bytes()) slot = reader.number();
    if (field == 3 && !reader.is_bytes()) per_rank = reader.number() != 0;
  }
  if (!reader.ok()) return Malformed(layout, "an object's bytes cannot be read");
  CheckName(layout, name);
  const std::vector<int> ranks = RanksOfLayout(layout);
  if (slot == 0 || slot % 4096 != 0 || slot > kMaxSlotBytes) {
    faults_.Add({Reason::kBadRequest,
                 std::string(name),
                 ranks,
                 {},
                 {},
                 absl::StrCat("object ", View(name), " of ", RanksText(ranks), " has a slot of ", slot,
                              " bytes, which is no multiple of 4096 up to 1 TiB")});
    return;
  }
  const auto [found, is_new] = object_ids_.try_emplace(std::string(name), static_cast<uint32_t>(set_.objects_.size()));
  if (is_new) {
    set_.objects_.push_back({std::string(name), per_rank, slot});
    object_layout_.push_back(layout);
    object_conflicts_.emplace_back();
  }
  const uint32_t object = found->second;
  std::vector<ObjectItem>& items = set_.layouts_[layout].objects;
  const bool twice =
      std::any_of(items.begin(), items.end(), [&](const ObjectItem& item) { return item.object == object; });
  if (twice) {
    faults_.Add({Reason::kNameCollision,
                 std::string(name),
                 ranks,
                 {},
                 {},
                 absl::StrCat("object ", View(name), " is declared twice by ", RanksText(ranks))});
    return;
  }
  items.push_back({object, slot});
  const Object& first = set_.objects_[object];
  if (first.per_rank != per_rank || (!per_rank && first.slot_bytes != slot))
    object_conflicts_[object].push_back(layout);
}

void LayoutSet::Reader::ReadAlias(uint32_t layout, std::string_view bytes) {
  AliasDeclaration alias;
  alias.layout = layout;
  WireReader reader(bytes);
  while (const uint32_t field = reader.NextField()) {
    if (field == 1 && reader.is_bytes()) alias.name = std::string(reader.bytes());
    if (field == 2 && reader.is_bytes()) alias.target = std::string(reader.bytes());
  }
  if (!reader.ok()) return Malformed(layout, "an alias's bytes cannot be read");
  CheckName(layout, alias.name);
  aliases_.push_back(std::move(alias));
}

void LayoutSet::Reader::Finish() {
  FinishConflicts();
  FinishNames();
  FinishAliases();
}

void LayoutSet::Reader::FinishConflicts() {
  // Equal disagreements of many schemas are one fault. A tensor that both differ in is told for both.
  std::map<std::pair<uint32_t, std::string>, std::vector<int>> ranks_by_conflict;
  std::map<std::pair<uint32_t, std::string>, Reason> reasons;
  for (const Conflict& conflict : conflicts_) {
    const Tensor& first = set_.tensors_[conflict.tensor];
    const std::vector<int> ranks = set_.RanksOfSchema(conflict.schema);
    const auto note = [&](Reason reason, std::string text) {
      const auto key = std::pair(conflict.tensor, std::move(text));
      reasons[key] = reason;
      std::vector<int>& all = ranks_by_conflict[key];
      all.insert(all.end(), ranks.begin(), ranks.end());
    };
    if (first.dtype != conflict.dtype) {
      note(Reason::kDtypeMismatch,
           absl::StrCat("dtype ", View(NameOf(conflict.dtype)), ", but |", View(NameOf(first.dtype))));
    }
    if (first.global_shape != conflict.global_shape) {
      note(Reason::kShapeMismatch, absl::StrCat("global shape ", ShapeToString(conflict.global_shape), ", but |",
                                                ShapeToString(first.global_shape)));
    }
  }
  for (auto& [key, ranks] : ranks_by_conflict) {
    std::sort(ranks.begin(), ranks.end());
    const Tensor& tensor = set_.tensors_[key.first];
    const std::vector<int> others = set_.RanksOfSchema(tensor_schema_[key.first]);
    const size_t bar = key.second.find('|');
    std::string text = absl::StrCat("tensor ", tensor.name, " has on ", RanksText(ranks), " the ",
                                    key.second.substr(0, bar), key.second.substr(bar + 1), " on ", RanksText(others));
    std::vector<int> all = ranks;
    all.insert(all.end(), others.begin(), others.end());
    std::sort(all.begin(), all.end());
    faults_.Add({reasons[key], tensor.name, all, {}, {}, std::move(text)});
  }
  for (size_t object = 0; object < object_conflicts_.size(); ++object) {
    std::vector<int> ranks;
    bool kind = false;
    for (uint32_t layout : object_conflicts_[object]) {
      for (int rank : RanksOfLayout(layout)) ranks.push_back(rank);
      for (const ObjectItem& item : set_.layouts_[layout].objects) {
        if (item.object == object && item.slot_bytes == set_.objects_[object].slot_bytes) kind = true;
      }
    }
    if (ranks.empty()) continue;
    std::sort(ranks.begin(), ranks.end());
    const std::vector<int> others = RanksOfLayout(object_layout_[object]);
    const std::string& name = set_.objects_[object].name;
    const bool collision = kind || set_.objects_[object].per_rank;
    faults_.Add({collision ? Reason::kNameCollision : Reason::kObjectMismatch,
                 name,
                 ranks,
                 {},
                 {},
                 collision
                     ? absl::StrCat("object ", name, " is one per rank on some ranks and the same on all on others: ",
                                    RanksText(ranks), " disagree with ", RanksText(others))
                     : absl::StrCat("object ", name, " is the same on all ranks, but its slot on ", RanksText(ranks),
                                    " is not that of ", RanksText(others))});
  }
}

void LayoutSet::Reader::FinishNames() {
  for (const auto& [name, object] : object_ids_) {
    const auto tensor = tensor_ids_.find(name);
    if (tensor == tensor_ids_.end()) continue;
    const std::vector<int> ranks = RanksOfLayout(object_layout_[object]);
    faults_.Add({Reason::kNameCollision,
                 name,
                 ranks,
                 {},
                 {},
                 absl::StrCat("the name ", name, " is an object on ", RanksText(ranks), " and a tensor on ",
                              RanksText(set_.RanksOfSchema(tensor_schema_[tensor->second])))});
  }
}

void LayoutSet::Reader::FinishAliases() {
  std::map<std::string, std::pair<std::string, uint32_t>> targets;  // by name: target and layout of the first
  for (const AliasDeclaration& alias : aliases_) targets.try_emplace(alias.name, alias.target, alias.layout);
  // The tensor at the end of a chain, or what is wrong with it.
  const auto resolve = [&](const std::string& name, std::string& fault) -> std::optional<uint32_t> {
    std::string at = name;
    for (size_t steps = 0; steps <= targets.size(); ++steps) {
      if (const auto tensor = tensor_ids_.find(at); tensor != tensor_ids_.end()) return tensor->second;
      const auto next = targets.find(at);
      if (next == targets.end()) {
        fault = absl::StrCat("leads to ", at, ", which no rank declares");
        return std::nullopt;
      }
      at = next->second.first;
    }
    fault = "leads in a circle";
    return std::nullopt;
  };
  std::set<std::string> told;
  for (const auto& [name, target] : targets) {
    const std::vector<int> ranks = RanksOfLayout(target.second);
    if (tensor_ids_.contains(name) || object_ids_.contains(name)) {
      faults_.Add(
          {Reason::kNameCollision,
           name,
           ranks,
           {},
           {},
           absl::StrCat("the name ", name, " is an alias on ", RanksText(ranks), " and declared by itself, too")});
      continue;
    }
    std::string fault;
    const auto tensor = resolve(target.first, fault);
    if (!tensor) {
      faults_.Add({Reason::kAliasUnresolved,
                   name,
                   ranks,
                   {},
                   {},
                   absl::StrCat("alias ", name, " of ", RanksText(ranks), " ", fault)});
      continue;
    }
    set_.aliases_.push_back({name, *tensor});
  }
  for (const AliasDeclaration& alias : aliases_) {
    const auto& first = targets[alias.name];
    if (first.first == alias.target) continue;
    std::string ignored;
    const auto a = resolve(alias.target, ignored), b = resolve(first.first, ignored);
    if ((a && a == b) || !told.insert(alias.name).second) continue;
    const std::vector<int> ranks = RanksOfLayout(alias.layout);
    faults_.Add({Reason::kNameCollision,
                 alias.name,
                 ranks,
                 {},
                 {},
                 absl::StrCat("alias ", alias.name, " stands for ", alias.target, " on ", RanksText(ranks), ", for ",
                              first.first, " on ", RanksText(RanksOfLayout(first.second)))});
  }
}

LayoutSet::LayoutSet(std::span<const RankInput> inputs, FaultList& faults) {
  std::vector<const RankInput*> sorted;
  for (const RankInput& input : inputs) sorted.push_back(&input);
  std::sort(sorted.begin(), sorted.end(), [](const auto* a, const auto* b) { return a->rank < b->rank; });
  absl::flat_hash_map<absl::string_view, uint32_t> layout_ids;
  absl::flat_hash_map<std::string, uint32_t> node_ids;
  std::vector<std::string_view> layout_bytes;
  size_t total_bytes = 0;
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
      total_bytes += input->layout.size();
    }
    const auto node = node_ids.try_emplace(input->node, static_cast<uint32_t>(nodes_.size()));
    if (node.second) nodes_.push_back(input->node);
    layouts_[layout->second].rank_indices.push_back(static_cast<int>(ranks_.size()));
    ranks_.push_back(input->rank);
    rank_layouts_.push_back(layout->second);
    rank_nodes_.push_back(node.first->second);
  }
  {
    Reader reader(*this, faults);
    for (uint32_t i = 0; i < layouts_.size(); ++i) reader.Read(i, layout_bytes[i]);
    reader.Finish();
  }
  SortShards();
}

void LayoutSet::SortShards() {
  by_name_.resize(tensors_.size());
  std::iota(by_name_.begin(), by_name_.end(), 0u);
  std::sort(by_name_.begin(), by_name_.end(),
            [&](uint32_t a, uint32_t b) { return tensors_[a].name < tensors_[b].name; });
  holder_begin_.assign(shards_.size() + 1, 0);
  for (uint32_t shard : items_) {
    if (shard < kInvalidShard) ++holder_begin_[shard + 1];
  }
  std::partial_sum(holder_begin_.begin(), holder_begin_.end(), holder_begin_.begin());
  holders_.resize(holder_begin_.back());
  {
    std::vector<size_t> next(holder_begin_.begin(), holder_begin_.end() - 1);
    for (uint32_t i = 0; i < layouts_.size(); ++i) {
      for (uint32_t shard : ItemsOf(layouts_[i])) {
        if (shard < kInvalidShard) holders_[next[shard]++] = i;
      }
    }
  }
  tensor_begin_.assign(tensors_.size() + 1, 0);
  for (const Shard& shard : shards_) ++tensor_begin_[shard.tensor + 1];
  std::partial_sum(tensor_begin_.begin(), tensor_begin_.end(), tensor_begin_.begin());
  by_tensor_.resize(shards_.size());
  {
    std::vector<uint32_t> next(tensor_begin_.begin(), tensor_begin_.end() - 1);
    for (uint32_t shard = 0; shard < shards_.size(); ++shard) by_tensor_[next[shards_[shard].tensor]++] = shard;
  }
  for (size_t tensor = 0; tensor < tensors_.size(); ++tensor) {
    const size_t ndim = tensors_[tensor].global_shape.size();
    const auto before = [&](uint32_t a, uint32_t b) {
      const int64_t* x = DimsOf(a);
      const int64_t* y = DimsOf(b);
      for (size_t i = 0; i < 2 * ndim; ++i) {
        if (x[i] != y[i]) return x[i] < y[i];
      }
      const bool x_flat = IsFlat(a), y_flat = IsFlat(b);
      if (!x_flat || !y_flat) return x_flat < y_flat;
      return std::pair(x[2 * ndim], x[2 * ndim + 1]) < std::pair(y[2 * ndim], y[2 * ndim + 1]);
    };
    const auto begin = by_tensor_.begin() + tensor_begin_[tensor];
    const auto end = by_tensor_.begin() + tensor_begin_[tensor + 1];
    if (!std::is_sorted(begin, end, before)) std::sort(begin, end, before);
  }
}

std::optional<uint32_t> LayoutSet::FindTensor(std::string_view name) const {
  const auto found = std::lower_bound(by_name_.begin(), by_name_.end(), name,
                                      [&](uint32_t tensor, std::string_view n) { return tensors_[tensor].name < n; });
  if (found == by_name_.end() || tensors_[*found].name != name) return std::nullopt;
  return *found;
}

Box LayoutSet::BoxOf(uint32_t shard) const {
  const size_t ndim = NdimOf(shard);
  const int64_t* dims = DimsOf(shard);
  return {Shape(dims, dims + ndim), Shape(dims + ndim, dims + 2 * ndim)};
}

std::optional<FlatRange> LayoutSet::FlatRangeOf(uint32_t shard) const {
  if (!IsFlat(shard)) return std::nullopt;
  const int64_t* range = DimsOf(shard) + 2 * NdimOf(shard);
  return FlatRange{range[0], range[1]};
}

StoredItem LayoutSet::ItemOf(uint32_t shard) const {
  const Tensor& tensor = tensors_[TensorOf(shard)];
  return {tensor.name, tensor.dtype, tensor.global_shape, BoxOf(shard), FlatRangeOf(shard), false, std::nullopt};
}

std::string LayoutSet::Describe(uint32_t shard) const {
  std::string text = absl::StrCat(tensors_[TensorOf(shard)].name, " ", ToString(BoxOf(shard)));
  if (const auto range = FlatRangeOf(shard)) absl::StrAppend(&text, " flat [", range->begin, ", ", range->end, ")");
  return text;
}

std::vector<int> LayoutSet::RanksOf(std::span<const uint32_t> shards) const {
  std::set<uint32_t> holders;
  for (uint32_t shard : shards) {
    const auto layouts = HoldersOf(shard);
    holders.insert(layouts.begin(), layouts.end());
  }
  std::vector<int> ranks;
  for (uint32_t layout : holders) {
    for (int index : layouts_[layout].rank_indices) ranks.push_back(ranks_[static_cast<size_t>(index)]);
  }
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

std::vector<int> LayoutSet::RanksOfSchema(uint32_t schema) const {
  std::vector<int> ranks;
  for (const Layout& layout : layouts_) {
    if (layout.schema != schema) continue;
    for (int index : layout.rank_indices) ranks.push_back(ranks_[static_cast<size_t>(index)]);
  }
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

}  // namespace cairn

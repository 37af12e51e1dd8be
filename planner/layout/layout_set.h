// The layouts of all ranks of a job. Each layout is read once. Equal layouts, schemas (the tensors of a layout) and
// shards are stored once and have a number.
#ifndef CAIRN_PLANNER_LAYOUT_LAYOUT_SET_H_
#define CAIRN_PLANNER_LAYOUT_LAYOUT_SET_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/format/safetensors_header.h"
#include "common/format/stored_item.h"
#include "common/status/fault.h"
#include "common/tensor/tiling.h"
#include "planner/layout/rank_input.h"

namespace cairn {

// Memory: about 4 bytes for each item of each distinct layout, and for each distinct shard 20 bytes and 16 per
// dimension. Sets that Derive made share most of it. Immutable after the constructor, and so thread-safe.
class LayoutSet {
 public:
  // Shard numbers that stand for no shard.
  static constexpr uint32_t kEmptyShard = UINT32_MAX;        // a shard without elements
  static constexpr uint32_t kInvalidShard = UINT32_MAX - 1;  // a shard with a fault that was reported

  struct Tensor {
    std::string name;
    DType dtype = DType::kUnspecified;
    Shape global_shape;
    int64_t elements = 0;
    // True if shards of the tensor were left out because of a reported fault. A gap in the tensor is then no fault of
    // its own.
    bool disputed = false;
  };
  // The way in which a target asks for an object: see ObjectWish in layout.proto.
  enum class Wish : uint8_t { kWhole, kInParts, kIfThere, kPlace };
  struct Object {
    std::string name;
    bool per_rank = false;
    uint64_t slot_bytes = 0;  // set for a shared object
    Wish wish = Wish::kWhole;
    std::string content_digest;  // of a shared object; empty if no rank has said it
  };
  struct ObjectItem {
    uint32_t object;
    Wish wish;
    uint64_t slot_bytes;
  };
  struct Alias {
    std::string name;
    uint32_t tensor;  // the tensor that it resolves to
  };
  // A layout that differs from all others.
  struct Layout {
    std::vector<int> rank_indices;  // into ranks(), ascending
    size_t first_item = 0;          // into items()
    uint32_t shards = 0;            // its items 0 .. shards-1
    uint32_t first_shard = 0;       // no layout before it has shards first_shard .. end_shard-1
    uint32_t end_shard = 0;
    std::vector<ObjectItem> objects;
    AliasList aliases;  // as declared
    uint32_t schema = 0;
  };

  // Reads the layouts. Faults of single layouts and disagreements between them go to `faults`. It goes on after a fault
  // with all that can be used, so that one pass finds all faults.
  LayoutSet(std::span<const RankInput> inputs, FaultList& faults);

  // Returns the set that the constructor makes of `inputs`, if its ranks, tensors and shards are those of `before`, in
  // which no fault was found. Objects, aliases, nodes, and which ranks share a layout may differ. Returns nothing for
  // other inputs, and for inputs with a fault. It reads only the layouts that `before` does not have: the cost is
  // O(ranks + objects + items of these layouts), and O(items) if ranks share layouts otherwise than before.
  static std::optional<LayoutSet> Derive(const LayoutSet& before, std::span<const RankInput> inputs);
  // Returns true if one was derived from the other, so that shards have the same numbers in both.
  bool SharesShards(const LayoutSet& other) const { return table_ == other.table_; }
  // Returns true if the ranks, too, that hold a shard are the same in both.
  bool SharesHolders(const LayoutSet& other) const {
    return table_ == other.table_ && holders_ == other.holders_ && rank_layouts_ == other.rank_layouts_;
  }

  // Returns the ranks, ascending. rank_nodes() and rank_layouts() are parallel to ranks() and have indices into nodes()
  // and layouts().
  const std::vector<int>& ranks() const { return ranks_; }
  const std::vector<uint32_t>& rank_nodes() const { return rank_nodes_; }
  const std::vector<std::string>& nodes() const { return nodes_; }
  const std::vector<uint32_t>& rank_layouts() const { return rank_layouts_; }
  const std::vector<std::string>& layout_digests() const { return layout_digests_; }

  // Returns false if one of the layouts could not be read at all.
  bool complete() const { return complete_; }
  const std::vector<Layout>& layouts() const { return layouts_; }
  const std::vector<Tensor>& tensors() const { return table_->tensors; }
  const std::vector<Object>& objects() const { return objects_; }
  // Sorted by name.
  const std::vector<Alias>& aliases() const { return aliases_; }
  // Returns the numbers of the tensors in the order of their names.
  const std::vector<uint32_t>& TensorsByName() const { return table_->by_name; }
  std::optional<uint32_t> FindTensor(std::string_view name) const;

  std::span<const uint32_t> ItemsOf(const Layout& layout) const {
    return std::span(table_->items).subspan(layout.first_item, layout.shards);
  }

  // Counts the distinct, non-empty shards.
  size_t shard_count() const { return table_->shards.size(); }
  uint32_t TensorOf(uint32_t shard) const { return table_->shards[shard].tensor; }
  uint64_t BytesOf(uint32_t shard) const { return table_->bytes[shard]; }
  uint64_t largest_shard_bytes() const { return table_->largest_bytes; }
  // Returns the shard's offsets and sizes and, for a flat piece, its range.
  PackedBox DimsOf(uint32_t shard) const { return table_->dims.data() + table_->shards[shard].dims; }
  bool IsFlat(uint32_t shard) const { return table_->shards[shard].flat; }
  size_t NdimOf(uint32_t shard) const { return table_->tensors[TensorOf(shard)].global_shape.size(); }
  Box BoxOf(uint32_t shard) const;
  std::optional<FlatRange> FlatRangeOf(uint32_t shard) const;
  StoredItem ItemOf(uint32_t shard) const;
  // Returns "w [0, 4):[0, 8)", with the flat range if there is one.
  std::string Describe(uint32_t shard) const;

  // Returns the layouts that hold a shard, ascending.
  std::span<const uint32_t> HoldersOf(uint32_t shard) const {
    return std::span(holders_->layouts)
        .subspan(holders_->begin[shard], holders_->begin[shard + 1] - holders_->begin[shard]);
  }
  // Returns true if a layout has a shard twice.
  bool repeats_shards() const { return holders_->repeat; }
  // Returns the shards of a tensor, ordered by (offset, shape, flat range).
  std::span<const uint32_t> ShardsOf(uint32_t tensor) const {
    return std::span(table_->by_tensor)
        .subspan(table_->tensor_begin[tensor], table_->tensor_begin[tensor + 1] - table_->tensor_begin[tensor]);
  }
  // Returns all ranks that hold one of `shards`, ascending.
  std::vector<int> RanksOf(std::span<const uint32_t> shards) const;
  std::vector<int> RanksOfSchema(uint32_t schema) const;

 private:
  struct Shard {
    uint32_t tensor;
    uint32_t dims : 31;
    uint32_t flat : 1;
  };
  // What follows from the tensors and shards of the layouts alone.
  struct ShardTable {
    std::vector<Tensor> tensors;
    std::vector<uint32_t> tensor_schema;         // by tensor: the schema in which it was seen first
    std::vector<std::vector<uint32_t>> schemas;  // their tensors; kInvalidShard for one with a fault
    std::vector<uint32_t> items;
    std::vector<Shard> shards;
    std::vector<uint64_t> bytes;
    std::vector<int64_t> dims;
    std::vector<uint32_t> tensor_begin;
    std::vector<uint32_t> by_tensor;
    std::vector<uint32_t> by_name;
    uint64_t largest_bytes = 0;
  };
  // The layouts that hold shard i are layouts[begin[i] .. begin[i + 1]).
  struct Holders {
    std::vector<size_t> begin;
    std::vector<uint32_t> layouts;
    bool repeat = false;  // one of them has the shard twice
  };
  class Reader;
  class Deriver;

  LayoutSet() = default;

  // Sets ranks, nodes and layouts, and returns the bytes of each layout.
  std::vector<std::string_view> AddRanks(std::span<const RankInput> inputs, FaultList& faults);
  // Makes room for the items of all layouts, after the first has been read: memory that is not used takes only
  // addresses, but a vector that grows is copied.
  static void ReserveFor(std::span<const std::string_view> layout_bytes, ShardTable& table);
  static void SortNames(ShardTable& table);
  static void SortShards(ShardTable& table);
  Holders FindHolders() const;

  bool complete_ = true;
  std::vector<int> ranks_;
  std::vector<uint32_t> rank_nodes_;
  std::vector<std::string> nodes_;
  std::vector<uint32_t> rank_layouts_;
  std::vector<std::string> layout_digests_;
  std::vector<Layout> layouts_;
  std::vector<Object> objects_;
  std::vector<Alias> aliases_;
  std::shared_ptr<const ShardTable> table_;
  std::shared_ptr<const Holders> holders_;
};

}  // namespace cairn

#endif  // CAIRN_PLANNER_LAYOUT_LAYOUT_SET_H_

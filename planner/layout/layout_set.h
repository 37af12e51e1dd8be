// The layouts of all ranks of a job. Each layout is read once. Equal layouts, schemas (the tensors of a layout) and
// shards are stored once and have a number.
#ifndef CAIRN_PLANNER_LAYOUT_LAYOUT_SET_H_
#define CAIRN_PLANNER_LAYOUT_LAYOUT_SET_H_

#include <cstdint>
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
// dimension. Immutable after the constructor, and so thread-safe.
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
  };
  struct ObjectItem {
    uint32_t object;
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
    std::vector<ObjectItem> objects;
    AliasList aliases;  // as declared
    uint32_t schema = 0;
  };

  // Reads the layouts. Faults of single layouts and disagreements between them go to `faults`. It goes on after a fault
  // with all that can be used, so that one pass finds all faults.
  LayoutSet(std::span<const RankInput> inputs, FaultList& faults);

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
  const std::vector<Tensor>& tensors() const { return tensors_; }
  const std::vector<Object>& objects() const { return objects_; }
  // Sorted by name.
  const std::vector<Alias>& aliases() const { return aliases_; }
  // Returns the numbers of the tensors in the order of their names.
  const std::vector<uint32_t>& TensorsByName() const { return by_name_; }
  std::optional<uint32_t> FindTensor(std::string_view name) const;

  std::span<const uint32_t> ItemsOf(const Layout& layout) const {
    return std::span(items_).subspan(layout.first_item, layout.shards);
  }

  // Counts the distinct, non-empty shards.
  size_t shard_count() const { return shards_.size(); }
  uint32_t TensorOf(uint32_t shard) const { return shards_[shard].tensor; }
  uint64_t BytesOf(uint32_t shard) const { return bytes_[shard]; }
  // Returns the shard's offsets and sizes and, for a flat piece, its range.
  PackedBox DimsOf(uint32_t shard) const { return dims_.data() + shards_[shard].dims; }
  bool IsFlat(uint32_t shard) const { return shards_[shard].flat; }
  size_t NdimOf(uint32_t shard) const { return tensors_[TensorOf(shard)].global_shape.size(); }
  Box BoxOf(uint32_t shard) const;
  std::optional<FlatRange> FlatRangeOf(uint32_t shard) const;
  StoredItem ItemOf(uint32_t shard) const;
  // Returns "w [0, 4):[0, 8)", with the flat range if there is one.
  std::string Describe(uint32_t shard) const;

  // Returns the layouts that hold a shard, ascending.
  std::span<const uint32_t> HoldersOf(uint32_t shard) const {
    return std::span(holders_).subspan(holder_begin_[shard], holder_begin_[shard + 1] - holder_begin_[shard]);
  }
  // Returns the shards of a tensor, ordered by (offset, shape, flat range).
  std::span<const uint32_t> ShardsOf(uint32_t tensor) const {
    return std::span(by_tensor_).subspan(tensor_begin_[tensor], tensor_begin_[tensor + 1] - tensor_begin_[tensor]);
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
  class Reader;

  void SortShards();

  bool complete_ = true;
  std::vector<int> ranks_;
  std::vector<uint32_t> rank_nodes_;
  std::vector<std::string> nodes_;
  std::vector<uint32_t> rank_layouts_;
  std::vector<std::string> layout_digests_;
  std::vector<Layout> layouts_;
  std::vector<Tensor> tensors_;
  std::vector<Object> objects_;
  std::vector<Alias> aliases_;
  std::vector<uint32_t> items_;
  std::vector<Shard> shards_;
  std::vector<uint64_t> bytes_;
  std::vector<int64_t> dims_;
  std::vector<size_t> holder_begin_;
  std::vector<uint32_t> holders_;
  std::vector<uint32_t> tensor_begin_;
  std::vector<uint32_t> by_tensor_;
  std::vector<uint32_t> by_name_;
};

}  // namespace cairn

#endif  // CAIRN_PLANNER_LAYOUT_LAYOUT_SET_H_

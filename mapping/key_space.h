// The tensors of one side of a mapping: their keys and shards, and a search by pattern.
#ifndef CAIRN_MAPPING_KEY_SPACE_H_
#define CAIRN_MAPPING_KEY_SPACE_H_

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "common/tensor/box.h"
#include "common/tensor/dtype.h"
#include "mapping/name_pattern.h"
#include "mapping/symbol_table.h"

namespace cairn::aoa {

// One shard of one tensor, as a rank declares it. Offsets and shapes count elements of the global tensor, and all three
// vectors have its number of dimensions.
struct ShardDesc {
  std::string_view key;
  Shape local_shape;
  Shape global_shape;
  Shape global_offset;
  DType dtype = DType::kUnspecified;  // kUnspecified: it is not known and fits every dtype
};

// The descriptions from which it was made must outlive it. Not thread-safe.
class KeySpace {
 public:
  static constexpr uint32_t kNone = UINT32_MAX;

  // Makes a side that is not known: it has no keys.
  KeySpace() = default;
  KeySpace(std::span<const ShardDesc> shards, SymbolTable& symbols);

  bool known() const { return known_; }
  // Returns the weights in order of appearance. A weight also counts if only optimizer states of it are there, unless
  // they are all scalars.
  const std::vector<Symbol>& weights() const { return weights_; }
  bool HasWeight(Symbol weight) const { return weight < is_weight_.size() && is_weight_[weight]; }

  // FirstShard returns the first shard declared under exactly this key, NextShard the next one under the same key.
  uint32_t FirstShard(Symbol key) const { return key < first_.size() ? first_[key] : kNone; }
  uint32_t NextShard(uint32_t shard) const { return next_[shard]; }
  const ShardDesc& shard(uint32_t index) const { return shards_[index]; }

  // Returns the shard from which a weight's global shape is taken: its own first shard, else the first shard of its
  // first state.
  uint32_t ShapeShard(Symbol weight, const SymbolTable& symbols) const;

  // Counts the distinct global offsets among the shards of exactly this key; 0 if there is no shard.
  int64_t ShardCount(Symbol key) const;

  // Calls `visit(weight, captures)` for every weight that matches, in order of appearance. `captures` has the digits
  // that each placeholder of the pattern matches, as views into the symbol's text. `tries`: see NamePattern::Match.
  void Match(const NamePattern& pattern, const SymbolTable& symbols, uint64_t& tries,
             const std::function<void(Symbol, const NamePattern::Captures&)>& visit);

  // Returns the weights that match a name with one `*`, ordered by the number that the star matches.
  std::vector<Symbol> MatchStar(std::string_view name, const SymbolTable& symbols, uint64_t& tries);

 private:
  struct Family {  // weights whose names are equal except for their numbers
    std::vector<Symbol> weights;
    // One map for each position of a number in the name. Its key is a name without the number at that position; its
    // value has the weights of that name, ordered by the number.
    std::vector<absl::flat_hash_map<std::string, std::vector<Symbol>>> without;
  };

  Family* FamilyOf(std::string_view skeleton, const SymbolTable& symbols);

  bool known_ = false;
  std::span<const ShardDesc> shards_;
  std::vector<uint32_t> first_, last_;  // by symbol
  std::vector<uint32_t> next_;          // by shard
  std::vector<bool> is_weight_;         // by symbol
  std::vector<Symbol> weights_;
  bool indexed_ = false;
  absl::flat_hash_map<std::string, Family> families_;
};

}  // namespace cairn::aoa

#endif  // CAIRN_MAPPING_KEY_SPACE_H_

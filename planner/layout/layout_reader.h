// Reads layouts into a LayoutSet; it sorts nothing but names.
#ifndef CAIRN_PLANNER_LAYOUT_LAYOUT_READER_H_
#define CAIRN_PLANNER_LAYOUT_LAYOUT_READER_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "common/format/layout_columns.h"
#include "planner/layout/layout_set.h"

namespace cairn {

inline absl::string_view View(std::string_view text) { return {text.data(), text.size()}; }

// Reads layouts into a set. Its tables are needed only while the layouts are read.
class LayoutSet::Reader {
 public:
  // `shards` is the table of `set`, for Read; it may be null if Read is not called.
  Reader(LayoutSet& set, ShardTable* shards, FaultList& faults) : set_(set), shards_(shards), faults_(faults) {}

  // Reads a whole layout. Its shards get the numbers in which they are seen first.
  void Read(uint32_t layout, std::string_view bytes);
  // Reads the objects and aliases of a layout alone.
  void ReadObjects(uint32_t layout, const LayoutColumns& columns);
  void AddObject(uint32_t layout, const ObjectFields& fields);
  // Adds an object of another set that had no fault. `number` is the object's number here, or kInvalidShard before the
  // first call for it.
  void AddKnownObject(uint32_t layout, const ObjectItem& item, const Object& object, uint32_t& number);
  void AddAlias(uint32_t layout, std::string name, std::string target);
  // Reports the disagreements between layouts, each once for a name, and resolves names and aliases. The table's
  // by_name must be set.
  void Finish();

  struct Extent {
    bool inside = true;  // the shard lies inside its tensor
    int64_t elements = 1;
  };
  static Extent ExtentOf(const Tensor& tensor, const int64_t* offset, const int64_t* shape, bool flat, FlatRange range);

 private:
  struct Schema {
    std::vector<uint32_t> ndims;
    bool bad = false;
  };
  struct Conflict {
    uint32_t tensor;
    uint32_t schema;
    DType dtype;
    Shape global_shape;
  };
  struct ObjectConflict {
    enum class Kind { kPerRank, kSlot, kContent };
    uint32_t layout;
    Kind kind;
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

  struct DeclaredTensor;
  struct TensorFault {
    Reason reason;
    std::string what;
  };
  static DeclaredTensor Declare(std::string_view name, int dtype, Shape global_shape);
  // Returns the fault that makes the tensor unusable, whatever the other layouts say; nothing if there is none.
  static std::optional<TensorFault> FaultOf(const DeclaredTensor& declared);
  // Returns the number of a schema's tensor, or kInvalidShard if it cannot be used. `seen` belongs to the same schema.
  uint32_t ReadTensor(uint32_t layout, uint32_t schema, const DeclaredTensor& declared,
                      absl::flat_hash_set<uint32_t>& seen);
  bool CheckTensor(uint32_t layout, const DeclaredTensor& declared);
  uint32_t AddTensor(uint32_t schema, const DeclaredTensor& declared);
  // Reads a tensor that another schema declares too.
  uint32_t MatchTensor(uint32_t tensor, uint32_t schema, const DeclaredTensor& declared);

  void ReadShards(uint32_t layout, uint32_t number);
  void ReadObject(uint32_t layout, std::string_view bytes);
  void ReadAlias(uint32_t layout, std::string_view bytes);
  void CheckName(uint32_t layout, std::string_view name);
  uint32_t Intern(uint32_t hash, uint32_t tensor, size_t ndim, const int64_t* offset, const int64_t* shape, bool flat,
                  FlatRange range, uint64_t bytes);
  void GrowTable();
  void FinishConflicts();
  void FinishObjectConflicts();
  void FinishNames();
  void FinishAliases();

  LayoutSet& set_;
  ShardTable* const shards_;
  FaultList& faults_;
  absl::flat_hash_map<absl::string_view, uint32_t> schema_ids_;  // views into the callers' bytes
  std::vector<Schema> schemas_;                                  // parallel to those of the table
  absl::flat_hash_map<std::string, uint32_t> tensor_ids_;
  absl::flat_hash_map<std::string, uint32_t> object_ids_;
  absl::flat_hash_set<std::string> bad_names_;
  std::vector<uint32_t> object_layout_;  // where an object was first seen
  std::vector<std::vector<ObjectConflict>> object_conflicts_;
  std::vector<Conflict> conflicts_;
  std::vector<AliasDeclaration> aliases_;

  // A hash table of the distinct shards: (shard number + 1, or 0 for a free place; the low 32 bits of the hash). The
  // place of a shard is the first free one from (hash & mask_) on.
  std::vector<std::pair<uint32_t, uint32_t>> table_ = std::vector<std::pair<uint32_t, uint32_t>>(kFirstPlaces);
  static constexpr size_t kFirstPlaces = 1024;
  uint32_t mask_ = kFirstPlaces - 1;

  LayoutColumns columns_;  // the layout that is being read
  struct Pending {
    uint32_t hash;
    uint32_t tensor;
    uint32_t dims;
    FlatRange range;
    uint64_t bytes;  // 0: the shard has no elements
    bool flat;
  };
  std::vector<Pending> pending_;
};

}  // namespace cairn

#endif  // CAIRN_PLANNER_LAYOUT_LAYOUT_READER_H_

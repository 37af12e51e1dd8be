// How layouts are read into a set: what LayoutSet's constructor does, apart from sorting.
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
#include "planner/layout/layout_columns.h"
#include "planner/layout/layout_set.h"

namespace cairn {

inline absl::string_view View(std::string_view text) { return {text.data(), text.size()}; }

// "rank 3", "ranks 0, 1".
inline std::string RanksText(std::span<const int> ranks) {
  return absl::StrCat(ranks.size() == 1 ? "rank " : "ranks ", JoinRanks(ranks));
}

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
  // Its number.
  uint32_t ReadSchema(uint32_t layout, std::string_view bytes);

  struct DeclaredTensor;
  struct TensorFault {
    Reason reason;
    std::string what;
  };
  static DeclaredTensor Declare(std::string_view name, int dtype, Shape global_shape);
  // What makes it unusable by itself.
  static std::optional<TensorFault> FaultOf(const DeclaredTensor& declared);
  // The number of one of a schema's tensors, or kInvalidShard if it cannot be used. `seen`: of the same schema.
  uint32_t ReadTensor(uint32_t layout, uint32_t schema, const DeclaredTensor& declared,
                      absl::flat_hash_set<uint32_t>& seen);
  bool CheckTensor(uint32_t layout, const DeclaredTensor& declared);
  uint32_t AddTensor(uint32_t schema, const DeclaredTensor& declared);
  // One that another schema declares too.
  uint32_t MatchTensor(uint32_t tensor, uint32_t schema, const DeclaredTensor& declared);

  void ReadShards(uint32_t layout, const Schema& schema);
  void ReadObject(uint32_t layout, std::string_view bytes);
  void ReadAlias(uint32_t layout, std::string_view bytes);
  void CheckName(uint32_t layout, std::string_view name);
  uint32_t Intern(uint64_t hash, uint32_t tensor, size_t ndim, const int64_t* offset, const int64_t* shape, bool flat,
                  FlatRange range, uint64_t bytes);
  void GrowTable(size_t size);
  void FinishConflicts();
  void FinishObjectConflicts();
  void FinishNames();
  void FinishAliases();

  LayoutSet& set_;
  FaultList& faults_;
  absl::flat_hash_map<absl::string_view, uint32_t> schema_ids_;  // views of the callers' bytes
  std::vector<Schema> schemas_;
  absl::flat_hash_map<std::string, uint32_t> tensor_ids_;
  absl::flat_hash_map<std::string, uint32_t> object_ids_;
  absl::flat_hash_set<std::string> bad_names_;
  std::vector<uint32_t> tensor_schema_;      // that a tensor was first seen in
  std::vector<uint32_t> object_layout_;      // that an object was first seen in
  std::vector<std::string> object_content_;  // digests, as first seen
  std::vector<std::vector<ObjectConflict>> object_conflicts_;
  std::vector<Conflict> conflicts_;
  std::vector<AliasDeclaration> aliases_;

  // Hash table of the distinct shards: number + 1 and 32 bits of the hash.
  std::vector<std::pair<uint32_t, uint32_t>> table_;
  uint64_t mask_ = 0;

  LayoutColumns columns_;  // of the layout that is being read
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

}  // namespace cairn

#endif  // CAIRN_PLANNER_LAYOUT_LAYOUT_READER_H_

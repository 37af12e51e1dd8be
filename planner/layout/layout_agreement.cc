// Finds disagreements between layouts, each reported once for a name, and the tensor that each alias means.
#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <utility>

#include "planner/layout/layout_reader.h"

namespace cairn {

void LayoutSet::Reader::Finish() {
  FinishConflicts();
  FinishObjectConflicts();
  FinishNames();
  FinishAliases();
}

void LayoutSet::Reader::FinishConflicts() {
  // Equal disagreements of many schemas are one fault. If both dtype and shape of a tensor differ, both are reported.
  std::map<std::pair<uint32_t, std::string>, std::vector<int>> ranks_by_conflict;
  std::map<std::pair<uint32_t, std::string>, Reason> reasons;
  for (const Conflict& conflict : conflicts_) {
    const Tensor& first = set_.tensors()[conflict.tensor];
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
    const Tensor& tensor = set_.tensors()[key.first];
    const std::vector<int> others = set_.RanksOfSchema(set_.table_->tensor_schema[key.first]);
    const size_t bar = key.second.find('|');
    std::string text = absl::StrCat("tensor ", tensor.name, " has on ", RanksText(ranks), " the ",
                                    key.second.substr(0, bar), key.second.substr(bar + 1), " on ", RanksText(others));
    std::vector<int> all = ranks;
    all.insert(all.end(), others.begin(), others.end());
    std::sort(all.begin(), all.end());
    faults_.Add({reasons[key], tensor.name, all, {}, {}, std::move(text)});
  }
}

void LayoutSet::Reader::FinishObjectConflicts() {
  using Kind = ObjectConflict::Kind;
  for (size_t object = 0; object < object_conflicts_.size(); ++object) {
    for (const Kind kind : {Kind::kPerRank, Kind::kSlot, Kind::kContent}) {
      std::vector<int> ranks;
      for (const ObjectConflict& conflict : object_conflicts_[object]) {
        if (conflict.kind != kind) continue;
        for (int rank : RanksOfLayout(conflict.layout)) ranks.push_back(rank);
      }
      if (ranks.empty()) continue;
      std::sort(ranks.begin(), ranks.end());
      const std::string& name = set_.objects_[object].name;
      const std::string those = RanksText(ranks), others = RanksText(RanksOfLayout(object_layout_[object]));
      std::string text;
      switch (kind) {
        case Kind::kPerRank:
          text = absl::StrCat("object ", name, " is one per rank on some ranks and the same on all on others: ", those,
                              " disagree with ", others);
          break;
        case Kind::kSlot:
          text = absl::StrCat("object ", name, " is the same on all ranks, but its slot on ", those, " is not that of ",
                              others);
          break;
        case Kind::kContent:
          text = absl::StrCat("object ", name, " is declared the same on all ranks, but the bytes of ", those,
                              " differ from those of ", others);
          break;
      }
      faults_.Add({kind == Kind::kPerRank ? Reason::kNameCollision : Reason::kObjectMismatch,
                   name,
                   std::move(ranks),
                   {},
                   {},
                   std::move(text)});
    }
  }
}

void LayoutSet::Reader::FinishNames() {
  for (const auto& [name, object] : object_ids_) {
    const auto tensor = set_.FindTensor(name);
    if (!tensor) continue;
    const std::vector<int> ranks = RanksOfLayout(object_layout_[object]);
    faults_.Add({Reason::kNameCollision,
                 name,
                 ranks,
                 {},
                 {},
                 absl::StrCat("the name ", name, " is an object on ", RanksText(ranks), " and a tensor on ",
                              RanksText(set_.RanksOfSchema(set_.table_->tensor_schema[*tensor])))});
  }
}

void LayoutSet::Reader::FinishAliases() {
  // By alias: its target and the first layout that declares it.
  std::map<std::string, std::pair<std::string, uint32_t>> targets;
  for (const AliasDeclaration& alias : aliases_) targets.try_emplace(alias.name, alias.target, alias.layout);
  // Returns the tensor at the end of a chain of aliases, or sets `fault` to a text that says why there is none.
  const auto resolve = [&](const std::string& name, std::string& fault) -> std::optional<uint32_t> {
    std::string at = name;
    for (size_t steps = 0; steps <= targets.size(); ++steps) {
      if (const auto tensor = set_.FindTensor(at)) return tensor;
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
    if (set_.FindTensor(name) || object_ids_.contains(name)) {
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

}  // namespace cairn

#include "planner/load/name_match.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "planner/load/object_match.h"

namespace cairn {
namespace {

bool IsBorder(std::string_view text, size_t at) { return at >= text.size() || text[at] == '.' || text[at] == '/'; }

// Returns `name` with the first occurrence of `part` as a whole component replaced; nothing if there is none.
std::optional<std::string> Exchange(std::string_view name, std::string_view part, std::string_view by) {
  for (size_t at = name.find(part); at != std::string_view::npos; at = name.find(part, at + 1)) {
    if ((at == 0 || IsBorder(name, at - 1)) && IsBorder(name, at + part.size())) {
      return std::string(name.substr(0, at)).append(by).append(name.substr(at + part.size()));
    }
  }
  return std::nullopt;
}

class Matcher {
 public:
  Matcher(const Manifest& source, const LayoutSet& targets) : targets_(targets) {
    for (uint32_t i = 0; i < source.tensors.size(); ++i) stored_.emplace(source.tensors[i].name, i);
    for (const auto& [name, target] : source.aliases) {
      aliases_.emplace(name, target);
      exchanges_.emplace_back(name, target);
    }
    for (const LayoutSet::Alias& alias : targets.aliases()) {
      aliases_of_[alias.tensor].push_back(alias.name);
      exchanges_.emplace_back(targets.tensors()[alias.tensor].name, alias.name);
    }
    // Longer aliases come first, so that an alias that is a part of another one does not win.
    std::sort(exchanges_.begin(), exchanges_.end(),
              [](const auto& a, const auto& b) { return std::pair(b.first.size(), a) < std::pair(a.first.size(), b); });
  }

  std::optional<uint32_t> Stored(const std::string& name) const {
    std::string at = name;
    for (size_t steps = 0; steps <= aliases_.size(); ++steps) {
      if (const auto found = stored_.find(at); found != stored_.end()) return found->second;
      const auto next = aliases_.find(at);
      if (next == aliases_.end()) return std::nullopt;
      at = next->second;
    }
    return std::nullopt;
  }

  std::optional<uint32_t> Find(uint32_t tensor) const {
    const std::string& name = targets_.tensors()[tensor].name;
    if (const auto found = Stored(name)) return found;
    if (const auto names = aliases_of_.find(tensor); names != aliases_of_.end()) {
      for (const std::string& alias : names->second) {
        if (const auto found = Stored(alias)) return found;
      }
    }
    for (const auto& [part, by] : exchanges_) {
      if (const auto other = Exchange(name, part, by)) {
        if (const auto found = Stored(*other)) return found;
      }
    }
    return std::nullopt;
  }

  // Returns whether the target has this stored tensor under another name.
  bool Expected(const std::string& name) const {
    for (const LayoutSet::Alias& alias : targets_.aliases()) {
      if (alias.name == name) return true;
      if (const auto other = Exchange(name, alias.name, targets_.tensors()[alias.tensor].name)) {
        if (targets_.FindTensor(*other)) return true;
      }
    }
    return false;
  }

 private:
  const LayoutSet& targets_;
  absl::flat_hash_map<std::string, uint32_t> stored_;
  std::map<std::string, std::string> aliases_;
  std::map<uint32_t, std::vector<std::string>> aliases_of_;  // by tensor of the target
  std::vector<std::pair<std::string, std::string>> exchanges_;
};

std::string ShardsText(uint64_t shards) { return absl::StrCat(shards, shards == 1 ? " shard" : " shards"); }

}  // namespace

NameMatch MatchNames(const Manifest& source, const LayoutSet& targets, FaultList& faults) {
  NameMatch match;
  const Matcher matcher(source, targets);
  std::vector<bool> used(source.tensors.size());
  match.source_of.assign(targets.tensors().size(), NameMatch::kNone);
  for (uint32_t i = 0; i < targets.tensors().size(); ++i) {
    const LayoutSet::Tensor& wanted = targets.tensors()[i];
    const auto found = matcher.Find(i);
    if (!found) {
      match.missing.push_back(wanted.name);
      continue;
    }
    used[*found] = true;
    const ManifestTensor& stored = source.tensors[*found];
    const auto fault = [&](Reason reason, std::string what) {
      const std::vector<int> ranks = targets.RanksOf(targets.ShardsOf(i));
      std::string name = wanted.name;
      if (stored.name != wanted.name) absl::StrAppend(&name, " (stored as ", stored.name, ")");
      faults.Add(
          {reason,
           wanted.name,
           ranks,
           {},
           {},
           absl::StrCat("tensor ", name, " ", what, "; the checkpoint has it in ", ShardsText(stored.shard_count),
                        ", the target in ", ShardsText(targets.ShardsOf(i).size()), " on ", RanksText(ranks))});
    };
    if (stored.global_shape != wanted.global_shape) {
      fault(Reason::kShapeMismatch,
            absl::StrCat("has the global shape ", ShapeToString(stored.global_shape), " in the checkpoint and ",
                         ShapeToString(wanted.global_shape), " in the target"));
    } else if (stored.dtype != wanted.dtype) {
      const std::string_view a = NameOf(stored.dtype), b = NameOf(wanted.dtype);
      fault(Reason::kDtypeMismatch,
            absl::StrCat("is ", absl::string_view(a.data(), a.size()), " in the checkpoint and ",
                         absl::string_view(b.data(), b.size()), " in the target"));
    } else {
      match.source_of[i] = *found;
    }
  }
  for (std::string& name : MissingObjects(source, targets)) match.missing.push_back(std::move(name));
  for (std::string& name : UnexpectedObjects(source, targets)) match.unexpected.push_back(std::move(name));
  for (uint32_t i = 0; i < source.tensors.size(); ++i) {
    if (!used[i] && !matcher.Expected(source.tensors[i].name)) match.unexpected.push_back(source.tensors[i].name);
  }
  std::sort(match.missing.begin(), match.missing.end());
  std::sort(match.unexpected.begin(), match.unexpected.end());
  return match;
}

}  // namespace cairn

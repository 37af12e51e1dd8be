#include "foreign/tensors/whole_tensors.h"

#include <fnmatch.h>

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "mapping/state_key.h"
#include "planner/load/mapped_match.h"

namespace cairn {
namespace {

bool Matches(const std::vector<std::string>& patterns, std::string_view name) {
  return std::any_of(patterns.begin(), patterns.end(), [&](const std::string& pattern) {
    return fnmatch(pattern.c_str(), std::string(name).c_str(), 0) == 0;
  });
}

absl::string_view View(std::string_view text) { return {text.data(), text.size()}; }

// Returns the unchanged stored tensor as an output.
WholeTensor Unchanged(const Manifest& manifest, uint32_t number, const std::string& name) {
  const ManifestTensor& stored = manifest.tensors[number];
  WholeTensor tensor;
  tensor.plain.name = name;
  tensor.plain.dtype = stored.dtype;
  tensor.plain.shape = stored.global_shape;
  if (*ElementCount(stored.global_shape) == 0) return tensor;
  tensor.links.emplace_back(WholeBox(stored.global_shape), WholeBox(stored.global_shape));
  tensor.links.back().source = number;
  return tensor;
}

// Returns the dtype in which all parts of an output arrive.
absl::StatusOr<DType> DtypeOf(const aoa::MappedState& mapped, const aoa::Output& output) {
  const aoa::Variables& variables = mapped.variables();
  std::optional<DType> dtype;
  for (const aoa::Slice& slice : variables.slices(output.variable)) {
    const DType arrives = variables.steps().DtypeAfter(slice.chain, variables.source(slice.source).dtype);
    if (dtype && *dtype != arrives) {
      const std::string name(mapped.Text(output.name));
      return MakeError(Reason::kMappingDtype,
                       absl::StrCat("'", name, "' is made of parts that arrive as ", std::string(NameOf(*dtype)),
                                    " and as ", std::string(NameOf(arrives)), "; cast them to one dtype"),
                       {{"tensor", name}});
    }
    dtype = arrives;
  }
  return *dtype;
}

// Makes the outputs of a mapping, and the optimizer states of these outputs.
class MappedTensors {
 public:
  MappedTensors(const Manifest& manifest, const TensorChoice& choice) : manifest_(manifest), choice_(choice) {
    absl::flat_hash_map<std::string_view, uint32_t> numbers;
    for (uint32_t i = 0; i < manifest.tensors.size(); ++i) numbers.emplace(manifest.tensors[i].name, i);
    for (const auto& [name, number] : numbers) {
      if (IsChosen(choice, name)) sources_.emplace(name, number);
    }
    for (const auto& [name, target] : manifest.aliases) {
      const auto found = numbers.find(target);
      if (found == numbers.end() || !IsChosen(choice, name)) continue;
      sources_.emplace(name, found->second);
      if (IsChosen(choice, target)) second_names_.insert(name);
    }
  }

  absl::StatusOr<std::vector<WholeTensor>> Make() && {
    std::vector<aoa::ShardDesc> sources = DescribeSources(manifest_);
    std::erase_if(sources, [&](const aoa::ShardDesc& shard) { return !IsChosen(choice_, shard.key); });
    CAIRN_ASSIGN_OR_RETURN(const aoa::MappedState mapped, aoa::BuildMapping(*choice_.mapping, sources, std::nullopt));
    for (const aoa::Output& output : mapped.outputs()) {
      if (output.variable == aoa::kNoVariable) continue;
      CAIRN_RETURN_IF_ERROR(AddWeight(mapped, output));
    }
    for (const aoa::Output& output : mapped.outputs()) {
      if (output.variable == aoa::kNoVariable) continue;
      for (const std::string_view suffix : aoa::kStateSuffixes) {
        CAIRN_RETURN_IF_ERROR(AddState(mapped, output, suffix));
      }
    }
    CAIRN_RETURN_IF_ERROR(AddLoneScalars());
    return std::move(tensors_);
  }

 private:
  static constexpr uint32_t kNone = NameMatch::kNone;

  uint32_t Stored(std::string_view name) const {
    const auto found = sources_.find(View(name));
    return found == sources_.end() ? kNone : found->second;
  }

  // Returns the names, with this suffix, of the stored tensors from which an output is made; each once.
  std::vector<std::string> SourcesOf(const aoa::MappedState& mapped, const aoa::Output& output,
                                     std::string_view suffix) const {
    std::vector<std::string> names;
    absl::flat_hash_set<aoa::SourceId> seen;
    for (const aoa::Slice& slice : mapped.variables().slices(output.variable)) {
      if (!seen.insert(slice.source).second) continue;
      std::string name = absl::StrCat(View(mapped.Text(mapped.variables().source(slice.source).name)), View(suffix));
      if (Stored(name) != kNone) names.push_back(std::move(name));
    }
    return names;
  }

  // Returns true if an output is one whole, unchanged source.
  static bool IsWholeSource(const aoa::MappedState& mapped, const aoa::Output& output) {
    const auto slices = mapped.variables().slices(output.variable);
    if (slices.size() != 1 || slices[0].chain != aoa::kNoSteps) return false;
    const auto shape = mapped.variables().shape(output.variable);
    const Shape& stored = mapped.variables().source(slices[0].source).shape;
    return std::equal(shape.begin(), shape.end(), stored.begin(), stored.end());
  }

  absl::Status AddWeight(const aoa::MappedState& mapped, const aoa::Output& output) {
    PlainTensor plain;
    plain.name = std::string(mapped.Text(output.name));
    const auto slices = mapped.variables().slices(output.variable);
    const bool whole = IsWholeSource(mapped, output);
    const bool untouched = whole && mapped.variables().source(slices[0].source).name == output.name;
    if (!aoa::SplitStateKey(plain.name).suffix.empty()) {
      if (untouched) return absl::OkStatus();  // the states belong to another weight
      return MakeError(Reason::kMappingUnknownName,
                       absl::StrCat("'", plain.name, "' is the name of an optimizer state; a mapping gives names of ",
                                    "weights, and their optimizer states follow"),
                       {{"tensor", plain.name}});
    }
    // A mapping knows a weight even if only states of it are stored.
    if (!slices.empty() && SourcesOf(mapped, output, "").empty()) return absl::OkStatus();
    // A second name that occurs in no statement.
    if (untouched && second_names_.contains(plain.name)) return absl::OkStatus();
    const auto shape = mapped.variables().shape(output.variable);
    plain.shape.assign(shape.begin(), shape.end());
    CAIRN_ASSIGN_OR_RETURN(plain.dtype, DtypeOf(mapped, output));
    CAIRN_ASSIGN_OR_RETURN(WholeTensor tensor, Resolved(mapped, std::move(plain)));
    return Add(std::move(tensor));
  }

  absl::Status AddState(const aoa::MappedState& mapped, const aoa::Output& output, std::string_view suffix) {
    const std::vector<std::string> sources = SourcesOf(mapped, output, suffix);
    if (sources.empty()) return absl::OkStatus();
    PlainTensor plain;
    plain.name = absl::StrCat(View(mapped.Text(output.name)), View(suffix));
    const ManifestTensor& first = manifest_.tensors[Stored(sources.front())];
    // The output is one whole source, so the state only gets the new name. This also renames a tensor that has the name
    // of a state but another shape than the weight.
    if (IsWholeSource(mapped, output)) return Add(Unchanged(manifest_, Stored(sources.front()), plain.name));
    plain.dtype = first.dtype;
    for (const std::string& name : sources) {
      const DType dtype = manifest_.tensors[Stored(name)].dtype;
      if (dtype == plain.dtype || aoa::SplitStateKey(name).kind == aoa::StateKind::kScalar) continue;
      return MakeError(Reason::kMappingDtype,
                       absl::StrCat("'", plain.name, "' is made of '", sources.front(), "', which is ",
                                    View(NameOf(plain.dtype)), ", and of '", name, "', which is ", View(NameOf(dtype))),
                       {{"tensor", plain.name}});
    }
    if (aoa::SplitStateKey(plain.name).kind == aoa::StateKind::kScalar) {
      const ManifestTensor& least = manifest_.tensors[Stored(*std::min_element(sources.begin(), sources.end()))];
      plain.dtype = least.dtype;
      plain.shape = least.global_shape;
    } else {
      const auto shape = mapped.variables().shape(output.variable);
      plain.shape.assign(shape.begin(), shape.end());
    }
    CAIRN_ASSIGN_OR_RETURN(WholeTensor tensor, Resolved(mapped, std::move(plain)));
    return Add(std::move(tensor));
  }

  // If only scalar states of a weight are stored, a mapping does not know the weight, so they keep their names.
  absl::Status AddLoneScalars() {
    for (const ManifestTensor& stored : manifest_.tensors) {
      const aoa::StateKey key = aoa::SplitStateKey(stored.name);
      if (key.kind != aoa::StateKind::kScalar || Stored(stored.name) == kNone || Stored(key.weight) != kNone) continue;
      const bool known = std::any_of(aoa::kStateSuffixes.begin(), aoa::kStateSuffixes.end(), [&](auto suffix) {
        const std::string name = absl::StrCat(View(key.weight), View(suffix));
        return aoa::SplitStateKey(name).kind == aoa::StateKind::kElementwise && Stored(name) != kNone;
      });
      if (!known) CAIRN_RETURN_IF_ERROR(Add(Unchanged(manifest_, Stored(stored.name), stored.name)));
    }
    return absl::OkStatus();
  }

  // Finds the sources of a tensor whose name, dtype and shape are known.
  absl::StatusOr<WholeTensor> Resolved(const aoa::MappedState& mapped, PlainTensor plain) const {
    const Box whole = WholeBox(plain.shape);
    std::vector<std::string> missing;
    const aoa::ShardDesc wanted{.key = plain.name,
                                .local_shape = whole.shape,
                                .global_shape = whole.shape,
                                .global_offset = whole.offset,
                                .dtype = plain.dtype};
    const auto stored = [this](const std::string& name) { return Stored(name); };
    CAIRN_ASSIGN_OR_RETURN(std::vector<AxisMap> links, AxisMapsOf(mapped, wanted, manifest_, stored, missing));
    if (!missing.empty()) {
      return MakeError(Reason::kMissingNames,
                       absl::StrCat("'", plain.name, "' needs '", missing.front(), "', which is not stored"),
                       {{"names", missing.front()}});
    }
    return WholeTensor{std::move(plain), std::move(links)};
  }

  absl::Status Add(WholeTensor tensor) {
    if (!names_.insert(tensor.plain.name).second) {
      return MakeError(Reason::kNameCollision,
                       absl::StrCat("two tensors would have the name '", tensor.plain.name, "'"),
                       {{"names", tensor.plain.name}, {"next", "Leave one of them out by --exclude."}});
    }
    tensors_.push_back(std::move(tensor));
    return absl::OkStatus();
  }

  const Manifest& manifest_;
  const TensorChoice& choice_;
  absl::flat_hash_map<std::string, uint32_t> sources_;  // the tensors by all names that are chosen
  absl::flat_hash_set<std::string> second_names_;       // of tensors whose own names are chosen too
  absl::flat_hash_set<std::string> names_;
  std::vector<WholeTensor> tensors_;
};

// Returns for each tensor whose own name is not chosen, but a second one is, the first such name.
absl::flat_hash_map<std::string, std::string> OtherNames(const Manifest& manifest, const TensorChoice& choice) {
  absl::flat_hash_map<std::string, std::string> names;
  for (const auto& [name, target] : manifest.aliases) {
    if (IsChosen(choice, name) && !IsChosen(choice, target)) names.try_emplace(target, name);
  }
  return names;
}

std::vector<WholeTensor> PlainTensors(const Manifest& manifest, const TensorChoice& choice) {
  const auto others = OtherNames(manifest, choice);
  std::vector<WholeTensor> tensors;
  for (uint32_t i = 0; i < manifest.tensors.size(); ++i) {
    const std::string& own = manifest.tensors[i].name;
    if (IsChosen(choice, own)) {
      tensors.push_back(Unchanged(manifest, i, own));
    } else if (const auto other = others.find(own); other != others.end()) {
      tensors.push_back(Unchanged(manifest, i, other->second));
    }
  }
  return tensors;
}

}  // namespace

bool IsChosen(const TensorChoice& choice, std::string_view name) {
  return (choice.include.empty() || Matches(choice.include, name)) && !Matches(choice.exclude, name);
}

std::vector<std::pair<std::string, std::string>> ChooseAliases(const Manifest& manifest, const TensorChoice& choice) {
  std::vector<std::pair<std::string, std::string>> aliases;
  if (choice.mapping) return aliases;
  const auto others = OtherNames(manifest, choice);
  for (const auto& [name, target] : manifest.aliases) {
    if (!IsChosen(choice, name)) continue;
    const auto other = others.find(target);
    if (other == others.end()) {
      aliases.emplace_back(name, target);
    } else if (other->second != name) {
      aliases.emplace_back(name, other->second);
    }
  }
  return aliases;
}

absl::StatusOr<std::vector<WholeTensor>> ChooseTensors(const Manifest& manifest, const TensorChoice& choice) {
  if (choice.mapping) return MappedTensors(manifest, choice).Make();
  return PlainTensors(manifest, choice);
}

}  // namespace cairn

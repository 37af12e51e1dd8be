#include "export/whole_tensors.h"

#include <fnmatch.h>

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "planner/load/mapped_match.h"

namespace cairn {
namespace {

bool Matches(const std::vector<std::string>& patterns, std::string_view name) {
  return std::any_of(patterns.begin(), patterns.end(), [&](const std::string& pattern) {
    return fnmatch(pattern.c_str(), std::string(name).c_str(), 0) == 0;
  });
}

// Returns the dtype in which all parts of an output arrive.
absl::StatusOr<DType> DtypeOf(const aoa::MappedState& mapped, const aoa::Output& output) {
  const aoa::Variables& variables = mapped.variables();
  std::optional<DType> dtype;
  for (const aoa::Slice& slice : variables.slices(output.variable)) {
    const DType cast = variables.steps().LastCast(slice.chain);
    const DType arrives = cast == DType::kUnspecified ? variables.source(slice.source).dtype : cast;
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

absl::StatusOr<std::vector<WholeTensor>> MappedTensors(const Manifest& manifest, const TensorChoice& choice) {
  std::vector<aoa::ShardDesc> sources = DescribeSources(manifest);
  std::erase_if(sources, [&](const aoa::ShardDesc& shard) { return !IsChosen(choice, shard.key); });
  CAIRN_ASSIGN_OR_RETURN(const aoa::MappedState mapped, aoa::BuildMapping(*choice.mapping, sources, std::nullopt));
  absl::flat_hash_map<std::string, uint32_t> numbers;
  for (uint32_t i = 0; i < manifest.tensors.size(); ++i) numbers.emplace(manifest.tensors[i].name, i);
  absl::flat_hash_map<std::string, uint32_t> second_names;
  for (const auto& [name, target] : manifest.aliases) {
    if (const auto found = numbers.find(target); found != numbers.end()) second_names.emplace(name, found->second);
  }
  const auto stored = [&](const std::string& name) {
    const auto found = numbers.find(name);
    if (found != numbers.end()) return found->second;
    const auto second = second_names.find(name);
    return second == second_names.end() ? NameMatch::kNone : second->second;
  };
  std::vector<WholeTensor> tensors;
  for (const aoa::Output& output : mapped.outputs()) {
    if (output.variable == aoa::kNoVariable) continue;
    WholeTensor& tensor = tensors.emplace_back();
    tensor.plain.name = std::string(mapped.Text(output.name));
    const auto shape = mapped.variables().shape(output.variable);
    tensor.plain.shape.assign(shape.begin(), shape.end());
    CAIRN_ASSIGN_OR_RETURN(tensor.plain.dtype, DtypeOf(mapped, output));
    const Box whole = WholeBox(shape);
    std::vector<std::string> missing;
    CAIRN_ASSIGN_OR_RETURN(tensor.links, AxisMapsOf(mapped,
                                                    {.key = tensor.plain.name,
                                                     .local_shape = whole.shape,
                                                     .global_shape = whole.shape,
                                                     .global_offset = whole.offset,
                                                     .dtype = tensor.plain.dtype},
                                                    manifest, stored, missing));
    if (!missing.empty()) {
      return MakeError(Reason::kMissingNames,
                       absl::StrCat("'", tensor.plain.name, "' needs '", missing.front(), "', which is not stored"),
                       {{"names", missing.front()}});
    }
    // This may be a second name about which no statement says anything.
    const bool untouched = tensor.links.size() == 1 && tensor.links[0].straight() && !tensor.links[0].is_cast() &&
                           tensor.links[0].source_box() == whole;
    if (untouched && second_names.contains(tensor.plain.name)) tensors.pop_back();
  }
  return tensors;
}

std::vector<WholeTensor> PlainTensors(const Manifest& manifest, const TensorChoice& choice) {
  std::vector<WholeTensor> tensors;
  for (uint32_t i = 0; i < manifest.tensors.size(); ++i) {
    const ManifestTensor& stored = manifest.tensors[i];
    if (!IsChosen(choice, stored.name)) continue;
    WholeTensor& tensor = tensors.emplace_back();
    tensor.plain.name = stored.name;
    tensor.plain.dtype = stored.dtype;
    tensor.plain.shape = stored.global_shape;
    if (*ElementCount(stored.global_shape) == 0) continue;
    tensor.links.emplace_back(WholeBox(stored.global_shape), WholeBox(stored.global_shape));
    tensor.links.back().source = i;
  }
  return tensors;
}

}  // namespace

bool IsChosen(const TensorChoice& choice, std::string_view name) {
  return (choice.include.empty() || Matches(choice.include, name)) && !Matches(choice.exclude, name);
}

absl::StatusOr<std::vector<WholeTensor>> ChooseTensors(const Manifest& manifest, const TensorChoice& choice) {
  if (choice.mapping) return MappedTensors(manifest, choice);
  return PlainTensors(manifest, choice);
}

}  // namespace cairn

#include "export/export_plan.h"

#include <fnmatch.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <numeric>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "planner/load/mapped_match.h"

namespace cairn {
namespace {

constexpr size_t kNamesTold = 5;

class Chooser {
 public:
  explicit Chooser(const ExportOptions& options) : options_(options) {}

  bool Takes(std::string_view name) const {
    return (options_.include.empty() || Matches(options_.include, name)) && !Matches(options_.exclude, name);
  }

 private:
  static bool Matches(const std::vector<std::string>& patterns, std::string_view name) {
    return std::any_of(patterns.begin(), patterns.end(), [&](const std::string& pattern) {
      return fnmatch(pattern.c_str(), std::string(name).c_str(), 0) == 0;
    });
  }

  const ExportOptions& options_;
};

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

absl::StatusOr<std::vector<ExportTensor>> MappedTensors(const Manifest& manifest, const ExportOptions& options) {
  const Chooser chooser(options);
  std::vector<aoa::ShardDesc> sources = DescribeSources(manifest);
  std::erase_if(sources, [&](const aoa::ShardDesc& shard) { return !chooser.Takes(shard.key); });
  CAIRN_ASSIGN_OR_RETURN(const aoa::MappedState mapped, aoa::BuildMapping(*options.mapping, sources, std::nullopt));
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
  std::vector<ExportTensor> tensors;
  for (const aoa::Output& output : mapped.outputs()) {
    if (output.variable == aoa::kNoVariable) continue;
    ExportTensor& tensor = tensors.emplace_back();
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

std::vector<ExportTensor> PlainTensors(const Manifest& manifest, const ExportOptions& options) {
  const Chooser chooser(options);
  std::vector<ExportTensor> tensors;
  for (uint32_t i = 0; i < manifest.tensors.size(); ++i) {
    const ManifestTensor& stored = manifest.tensors[i];
    if (!chooser.Takes(stored.name)) continue;
    ExportTensor& tensor = tensors.emplace_back();
    tensor.plain.name = stored.name;
    tensor.plain.dtype = stored.dtype;
    tensor.plain.shape = stored.global_shape;
    if (*ElementCount(stored.global_shape) == 0) continue;
    tensor.links.emplace_back(WholeBox(stored.global_shape), WholeBox(stored.global_shape));
    tensor.links.back().source = i;
  }
  return tensors;
}

absl::Status CheckDtypes(const std::vector<ExportTensor>& tensors) {
  std::string told;
  size_t count = 0;
  for (const ExportTensor& tensor : tensors) {
    if (!PlainDtypeName(tensor.plain.dtype).empty()) continue;
    if (++count <= kNamesTold) {
      absl::StrAppend(&told, count == 1 ? "" : ", ", tensor.plain.name, " (", std::string(NameOf(tensor.plain.dtype)),
                      ")");
    }
  }
  if (count == 0) return absl::OkStatus();
  if (count > kNamesTold) absl::StrAppend(&told, " and ", count - kNamesTold, " more");
  return MakeError(Reason::kUnsupported, absl::StrCat("safetensors has no dtype for ", told, "; leave them out"),
                   {{"names", told}});
}

}  // namespace

bool NaturallyLess(std::string_view a, std::string_view b) {
  const auto digit = [](char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; };
  size_t i = 0, j = 0;
  while (i < a.size() && j < b.size()) {
    if (digit(a[i]) && digit(b[j])) {
      size_t ei = i, ej = j;
      while (ei < a.size() && digit(a[ei])) ++ei;
      while (ej < b.size() && digit(b[ej])) ++ej;
      size_t si = i, sj = j;
      while (si + 1 < ei && a[si] == '0') ++si;
      while (sj + 1 < ej && b[sj] == '0') ++sj;
      if (ei - si != ej - sj) return ei - si < ej - sj;
      const int order = a.substr(si, ei - si).compare(b.substr(sj, ej - sj));
      if (order != 0) return order < 0;
      i = ei;
      j = ej;
    } else if (a[i] != b[j]) {
      return static_cast<unsigned char>(a[i]) < static_cast<unsigned char>(b[j]);
    } else {
      ++i;
      ++j;
    }
  }
  const size_t left_a = a.size() - i, left_b = b.size() - j;
  return left_a != left_b ? left_a < left_b : a < b;
}

absl::StatusOr<ExportPlan> MakeExportPlan(const Manifest& manifest, const ExportOptions& options) {
  ExportPlan plan;
  if (options.mapping) {
    CAIRN_ASSIGN_OR_RETURN(plan.tensors, MappedTensors(manifest, options));
  } else {
    plan.tensors = PlainTensors(manifest, options);
  }
  if (plan.tensors.empty()) {
    return MakeError(Reason::kBadRequest,
                     absl::StrCat("nothing to export: none of the ", manifest.tensors.size(), " tensors is left"));
  }
  CAIRN_RETURN_IF_ERROR(CheckDtypes(plan.tensors));
  std::sort(plan.tensors.begin(), plan.tensors.end(),
            [](const ExportTensor& a, const ExportTensor& b) { return NaturallyLess(a.plain.name, b.plain.name); });
  const auto bytes_of = [](const PlainTensor& tensor) {
    return static_cast<uint64_t>(*ElementCount(tensor.shape)) * static_cast<uint64_t>(BytesOf(tensor.dtype));
  };
  for (uint32_t i = 0; i < plan.tensors.size(); ++i) {
    const uint64_t bytes = bytes_of(plan.tensors[i].plain);
    if (plan.files.empty() ||
        (plan.files.back().data_bytes > 0 && plan.files.back().data_bytes + bytes > options.max_shard_bytes)) {
      plan.files.emplace_back();
    }
    plan.files.back().tensors.push_back(i);
    plan.files.back().data_bytes += bytes;
    plan.total_bytes += bytes;
  }
  PlainIndex index;
  index.total_size = plan.total_bytes;
  for (size_t f = 0; f < plan.files.size(); ++f) {
    ExportFile& file = plan.files[f];
    file.name = absl::StrFormat("model-%05d-of-%05d.safetensors", f + 1, plan.files.size());
    // Wide elements come first, so that all elements are aligned.
    std::stable_sort(file.tensors.begin(), file.tensors.end(), [&](uint32_t a, uint32_t b) {
      return BytesOf(plan.tensors[a].plain.dtype) > BytesOf(plan.tensors[b].plain.dtype);
    });
    std::vector<PlainTensor> plain;
    uint64_t begin = 0;
    for (uint32_t number : file.tensors) {
      PlainTensor& tensor = plan.tensors[number].plain;
      tensor.begin = begin;
      tensor.end = begin += bytes_of(tensor);
      plain.push_back(tensor);
      index.weight_map.emplace_back(tensor.name, file.name);
    }
    file.header = RenderPlainHeader(plain);
  }
  std::sort(index.weight_map.begin(), index.weight_map.end());
  plan.index = RenderPlainIndex(index);
  return plan;
}

}  // namespace cairn

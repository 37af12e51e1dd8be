#include "mapping/report.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "mapping/name_pattern.h"
#include "mapping/state_key.h"

namespace cairn::aoa {
namespace {

std::string DtypeText(DType dtype) { return dtype == DType::kUnspecified ? "unknown" : std::string(NameOf(dtype)); }

std::string Wildcarded(std::string_view name) {
  std::string pattern;
  AppendSkeleton(name, pattern);
  std::replace(pattern.begin(), pattern.end(), '\1', '*');
  return pattern;
}

struct Making {
  bool whole = true;  // each part is a whole source
  size_t parts = 0;
  std::set<SourceId> sources;
  // The names of the sources with '*' for their numbers, each once with how many sources have it.
  std::vector<std::pair<std::string, size_t>> patterns;
  std::string steps;  // the steps of all parts if they are equal, else "different steps"
};

Making MakingOf(const MappedState& mapped, const std::vector<Variables::Part>& parts) {
  const Variables& variables = mapped.variables();
  Making making;
  making.parts = parts.size();
  for (const Variables::Part& part : parts) {
    making.whole &= part.source_box == WholeBox(variables.source(part.source).shape);
    const std::string steps = absl::StrJoin(variables.steps().texts(part.chain), ", then ");
    if (&part == &parts.front()) making.steps = steps;
    if (steps != making.steps) making.steps = "different steps";
    if (!making.sources.insert(part.source).second) continue;
    const std::string pattern = Wildcarded(mapped.Text(variables.source(part.source).name));
    const auto found = std::find_if(making.patterns.begin(), making.patterns.end(),
                                    [&](const auto& known) { return known.first == pattern; });
    if (found == making.patterns.end()) {
      making.patterns.emplace_back(pattern, 1);
    } else {
      ++found->second;
    }
  }
  return making;
}

// Returns whether the output is one whole, unchanged source.
bool KeepsContent(const Making& making) {
  return making.sources.size() == 1 && making.parts == 1 && making.whole && making.steps.empty();
}

std::string OperationOf(const Making& making) {
  std::string operation;
  if (making.sources.size() > 1) {
    operation = absl::StrCat(making.whole ? "merge of " : "rearranged from ", making.sources.size());
  } else if (making.parts > 1) {
    operation = "rearranged";
  } else if (!making.whole) {
    operation = "part";
  } else if (making.steps.empty()) {
    operation = "rename";
  }
  if (!making.steps.empty()) absl::StrAppend(&operation, operation.empty() ? "" : ", ", making.steps);
  return operation;
}

std::vector<std::string> SourcesOf(const Making& making) {
  std::vector<std::string> texts;
  for (const auto& [pattern, count] : making.patterns) {
    texts.push_back(count == 1 ? pattern : absl::StrCat(pattern, " x", count));
  }
  return texts;
}

void AddOutputs(const MappedState& mapped, MappingReport& report) {
  const Variables& variables = mapped.variables();
  std::map<std::tuple<std::string, std::string, std::vector<std::string>>, size_t> groups;
  std::vector<Variables::Part> parts;
  for (const Output& output : mapped.outputs()) {
    const std::string name(mapped.Text(output.name));
    if (output.missing) report.missing.push_back(name);
    if (output.added) report.added.push_back(name);
    if (output.variable == kNoVariable) continue;
    ++report.matched;
    parts.clear();
    if (!variables.Find(output.variable, WholeBox(variables.shape(output.variable)), parts).ok()) continue;
    const Making making = MakingOf(mapped, parts);
    if (KeepsContent(making) && variables.source(parts.front().source).name == output.name) {
      ++report.identities;
    } else {
      ++groups[{Wildcarded(name), OperationOf(making), SourcesOf(making)}];
    }
  }
  for (const auto& [key, count] : groups) {
    const auto& [target, operation, sources] = key;
    report.groups.push_back({target, sources, operation, count});
  }
}

// Compares what the shard's tensor is mapped to with what is wanted.
void AddMismatches(const MappedState& mapped, const ShardDesc& wanted, MappingReport& report) {
  const Output* output = mapped.FindOutput(wanted.key);
  if (output == nullptr || output->variable == kNoVariable) return;
  const Variables& variables = mapped.variables();
  const auto shape = variables.shape(output->variable);
  if (!std::equal(shape.begin(), shape.end(), wanted.global_shape.begin(), wanted.global_shape.end())) {
    report.shape_mismatches.push_back(
        {std::string(wanted.key), wanted.global_shape, Shape(shape.begin(), shape.end())});
  }
  for (const Slice& slice : variables.slices(output->variable)) {
    const SourceTensor& source = variables.source(slice.source);
    const DType arrives = variables.steps().DtypeAfter(slice.chain, source.dtype);
    if (MayBeEqual(arrives, wanted.dtype)) continue;
    report.dtype_mismatches.push_back(
        {std::string(wanted.key), wanted.dtype, arrives, std::string(mapped.Text(source.name))});
    return;  // one mismatch for each tensor is enough
  }
}

// Writes a title with the number of items, and a line for each of the first `limit`.
template <typename Item, typename Line>
void WriteList(std::string& text, std::string_view title, const std::vector<Item>& items, size_t limit,
               const Line& line) {
  if (items.empty()) return;
  absl::StrAppend(&text, std::string(title), " (", items.size(), "):\n");
  for (size_t i = 0; i < std::min(limit, items.size()); ++i) absl::StrAppend(&text, "  ", line(items[i]), "\n");
  if (items.size() > limit) absl::StrAppend(&text, "  ... and ", items.size() - limit, " more\n");
}

void WriteNames(std::string& text, std::string_view title, const std::vector<std::string>& names, size_t limit) {
  WriteList(text, title, names, limit, [](const std::string& name) { return name; });
}

std::string Padded(std::string cell, size_t width) {
  cell.resize(std::max(width, cell.size()), ' ');
  return cell;
}

void WriteGroups(std::string& text, const std::vector<MappingReport::Group>& groups, const ReportLimits& limits) {
  if (groups.empty()) return;
  const std::span<const MappingReport::Group> shown(groups.data(), std::min(limits.groups, groups.size()));
  size_t count_width = 5, target_width = 6, operation_width = 9;
  for (const MappingReport::Group& group : shown) {
    count_width = std::max(count_width, absl::StrCat(group.count).size());
    target_width = std::max(target_width, group.target.size());
    operation_width = std::max(operation_width, group.operation.size());
  }
  target_width = std::min<size_t>(target_width, 72);
  operation_width = std::min<size_t>(operation_width, 32);
  absl::StrAppend(&text, Padded("COUNT", count_width), "  ", Padded("TARGET", target_width), "  ",
                  Padded("OPERATION", operation_width), "  SOURCE\n");
  for (const MappingReport::Group& group : shown) {
    std::vector<std::string> sources(
        group.sources.begin(),
        group.sources.begin() + static_cast<ptrdiff_t>(std::min(limits.sources, group.sources.size())));
    if (group.sources.size() > limits.sources) {
      sources.push_back(absl::StrCat("and ", group.sources.size() - limits.sources, " more"));
    }
    absl::StrAppend(&text, Padded(absl::StrCat(group.count), count_width), "  ", Padded(group.target, target_width),
                    "  ", Padded(group.operation, operation_width), "  ", absl::StrJoin(sources, ", "), "\n");
  }
  if (groups.size() > shown.size()) absl::StrAppend(&text, "... and ", groups.size() - shown.size(), " more\n");
}

}  // namespace

MappingReport MakeReport(const MappedState& mapped, std::optional<std::span<const ShardDesc>> destination) {
  MappingReport report;
  AddOutputs(mapped, report);
  for (std::string_view name : mapped.unused()) report.unexpected.emplace_back(name);
  for (std::string_view name : mapped.removed()) report.removed.emplace_back(name);
  if (!destination.has_value()) return report;
  std::string_view previous;  // the shards of a tensor mostly follow one another
  std::set<std::string_view> judged;
  for (const ShardDesc& shard : *destination) {
    if (shard.key == previous || !SplitStateKey(shard.key).suffix.empty()) continue;
    previous = shard.key;
    if (!judged.insert(shard.key).second) continue;
    AddMismatches(mapped, shard, report);
  }
  return report;
}

std::string FormatReport(const MappingReport& report, const ReportLimits& limits) {
  std::string text =
      absl::StrCat("Mapping: ", report.matched, " matched (", report.identities, " unchanged), ", report.missing.size(),
                   " missing, ", report.unexpected.size(), " unexpected, ", report.shape_mismatches.size(),
                   " of another shape, ", report.dtype_mismatches.size(), " of another dtype, ", report.added.size(),
                   " added, ", report.removed.size(), " removed\n");
  WriteNames(text, "Missing: wanted, and given by no source and no statement", report.missing, limits.names);
  WriteNames(text, "Unexpected: in the source, and used by nothing", report.unexpected, limits.names);
  WriteList(text, "Another shape", report.shape_mismatches, limits.mismatches,
            [](const MappingReport::ShapeMismatch& mismatch) {
              return absl::StrCat(mismatch.name, ": wanted ", ShapeToString(mismatch.wanted), ", mapped ",
                                  ShapeToString(mismatch.mapped));
            });
  WriteList(text, "Another dtype", report.dtype_mismatches, limits.mismatches,
            [](const MappingReport::DtypeMismatch& mismatch) {
              return absl::StrCat(mismatch.name, ": wanted ", DtypeText(mismatch.wanted), ", but ",
                                  DtypeText(mismatch.arrives), " arrives from ", mismatch.source);
            });
  WriteGroups(text, report.groups, limits);
  WriteNames(text, "Added: they keep their initial value", report.added, limits.names);
  WriteNames(text, "Removed: left out of the mapping", report.removed, limits.names);
  return text;
}

}  // namespace cairn::aoa

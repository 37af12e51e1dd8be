#include "mapping/report.h"

#include <algorithm>
#include <map>
#include <tuple>

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

bool IsWholeSource(const Variables& variables, const Variables::Part& part) {
  const Shape& shape = variables.source(part.source).shape;
  return part.source_box == WholeBox(shape);
}

void Names(std::string& text, std::string_view title, const std::vector<std::string>& names, size_t limit) {
  if (names.empty()) return;
  absl::StrAppend(&text, std::string(title), " (", names.size(), "):\n");
  for (size_t i = 0; i < std::min(limit, names.size()); ++i) absl::StrAppend(&text, "  ", names[i], "\n");
  if (names.size() > limit) absl::StrAppend(&text, "  ... and ", names.size() - limit, " more\n");
}

}  // namespace

MappingReport MakeReport(const MappedState& mapped, std::optional<std::span<const ShardDesc>> destination) {
  MappingReport report;
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
    bool whole = true;
    std::map<SourceId, bool> seen;
    std::vector<std::pair<std::string, size_t>> sources;
    std::string steps;
    for (const Variables::Part& part : parts) {
      whole &= IsWholeSource(variables, part);
      std::string text = absl::StrJoin(variables.steps().texts(part.chain), ", then ");
      if (&part == &parts.front()) steps = text;
      if (text != steps) steps = "different steps";
      if (!seen.emplace(part.source, true).second) continue;
      const std::string pattern = Wildcarded(mapped.Text(variables.source(part.source).name));
      const auto found =
          std::find_if(sources.begin(), sources.end(), [&](const auto& s) { return s.first == pattern; });
      if (found == sources.end()) {
        sources.emplace_back(pattern, 1);
      } else {
        ++found->second;
      }
    }
    std::string operation;
    if (seen.size() > 1) {
      operation = absl::StrCat(whole ? "merge of " : "rearranged from ", seen.size());
    } else if (!whole || parts.size() > 1) {
      operation = parts.size() > 1 ? "rearranged" : "part";
    } else if (steps.empty()) {
      const bool same = !parts.empty() && variables.source(parts.front().source).name == output.name;
      if (same) {
        ++report.identities;
        continue;
      }
      operation = "rename";
    }
    if (!steps.empty()) absl::StrAppend(&operation, operation.empty() ? "" : ", ", steps);
    std::vector<std::string> texts;
    for (const auto& [pattern, count] : sources) {
      texts.push_back(count == 1 ? pattern : absl::StrCat(pattern, " x", count));
    }
    ++groups[{Wildcarded(name), operation, texts}];
  }
  for (const auto& [key, count] : groups) {
    report.groups.push_back({std::get<0>(key), std::get<2>(key), std::get<1>(key), count});
  }
  for (std::string_view name : mapped.unused()) report.unexpected.emplace_back(name);
  for (std::string_view name : mapped.removed()) report.removed.emplace_back(name);
  if (!destination.has_value()) return report;

  std::string_view previous;
  std::map<std::string_view, bool> judged;
  for (const ShardDesc& shard : *destination) {
    if (shard.key == previous || !SplitStateKey(shard.key).suffix.empty()) continue;
    previous = shard.key;
    if (!judged.emplace(shard.key, true).second) continue;
    const Output* output = mapped.FindOutput(shard.key);
    if (output == nullptr || output->variable == kNoVariable) continue;
    const auto shape = variables.shape(output->variable);
    if (!std::equal(shape.begin(), shape.end(), shard.global_shape.begin(), shard.global_shape.end())) {
      report.shape_mismatches.push_back(
          {std::string(shard.key), shard.global_shape, Shape(shape.begin(), shape.end())});
    }
    for (const Slice& slice : variables.slices(output->variable)) {
      const SourceTensor& source = variables.source(slice.source);
      const DType cast = variables.steps().LastCast(slice.chain);
      if (source.dtype == shard.dtype || cast == shard.dtype || source.dtype == DType::kUnspecified ||
          shard.dtype == DType::kUnspecified) {
        continue;
      }
      report.dtype_mismatches.push_back({std::string(shard.key), shard.dtype,
                                         cast == DType::kUnspecified ? source.dtype : cast,
                                         std::string(mapped.Text(source.name))});
      break;
    }
  }
  return report;
}

std::string FormatReport(const MappingReport& report, const ReportLimits& limits) {
  std::string text =
      absl::StrCat("Mapping: ", report.matched, " matched (", report.identities, " unchanged), ", report.missing.size(),
                   " missing, ", report.unexpected.size(), " unexpected, ", report.shape_mismatches.size(),
                   " of another shape, ", report.dtype_mismatches.size(), " of another dtype, ", report.added.size(),
                   " added, ", report.removed.size(), " removed\n");
  Names(text, "Missing: wanted, and given by no source and no statement", report.missing, limits.names);
  Names(text, "Unexpected: in the source, and used by nothing", report.unexpected, limits.names);
  if (!report.shape_mismatches.empty()) {
    absl::StrAppend(&text, "Another shape (", report.shape_mismatches.size(), "):\n");
    for (size_t i = 0; i < std::min(limits.mismatches, report.shape_mismatches.size()); ++i) {
      const auto& mismatch = report.shape_mismatches[i];
      absl::StrAppend(&text, "  ", mismatch.name, ": wanted ", ShapeToString(mismatch.wanted), ", mapped ",
                      ShapeToString(mismatch.mapped), "\n");
    }
    if (report.shape_mismatches.size() > limits.mismatches) {
      absl::StrAppend(&text, "  ... and ", report.shape_mismatches.size() - limits.mismatches, " more\n");
    }
  }
  if (!report.dtype_mismatches.empty()) {
    absl::StrAppend(&text, "Another dtype (", report.dtype_mismatches.size(), "):\n");
    for (size_t i = 0; i < std::min(limits.mismatches, report.dtype_mismatches.size()); ++i) {
      const auto& mismatch = report.dtype_mismatches[i];
      absl::StrAppend(&text, "  ", mismatch.name, ": wanted ", DtypeText(mismatch.wanted), ", but ",
                      DtypeText(mismatch.arrives), " arrives from ", mismatch.source, "\n");
    }
    if (report.dtype_mismatches.size() > limits.mismatches) {
      absl::StrAppend(&text, "  ... and ", report.dtype_mismatches.size() - limits.mismatches, " more\n");
    }
  }
  if (!report.groups.empty()) {
    const size_t shown = std::min(limits.groups, report.groups.size());
    size_t count_width = 5, target_width = 6, operation_width = 9;
    for (size_t i = 0; i < shown; ++i) {
      count_width = std::max(count_width, absl::StrCat(report.groups[i].count).size());
      target_width = std::max(target_width, report.groups[i].target.size());
      operation_width = std::max(operation_width, report.groups[i].operation.size());
    }
    target_width = std::min<size_t>(target_width, 72);
    operation_width = std::min<size_t>(operation_width, 32);
    const auto pad = [](std::string cell, size_t width) {
      cell.resize(std::max(width, cell.size()), ' ');
      return cell;
    };
    absl::StrAppend(&text, pad("COUNT", count_width), "  ", pad("TARGET", target_width), "  ",
                    pad("OPERATION", operation_width), "  SOURCE\n");
    for (size_t i = 0; i < shown; ++i) {
      const MappingReport::Group& group = report.groups[i];
      std::vector<std::string> sources(group.sources.begin(),
                                       group.sources.begin() + std::min(limits.sources, group.sources.size()));
      if (group.sources.size() > limits.sources) {
        sources.push_back(absl::StrCat("and ", group.sources.size() - limits.sources, " more"));
      }
      absl::StrAppend(&text, pad(absl::StrCat(group.count), count_width), "  ", pad(group.target, target_width), "  ",
                      pad(group.operation, operation_width), "  ", absl::StrJoin(sources, ", "), "\n");
    }
    if (report.groups.size() > shown) absl::StrAppend(&text, "... and ", report.groups.size() - shown, " more\n");
  }
  Names(text, "Added: they keep their initial value", report.added, limits.names);
  Names(text, "Removed: left out of the mapping", report.removed, limits.names);
  return text;
}

}  // namespace cairn::aoa

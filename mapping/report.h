// A report on a mapping for people: names that match, names that do not, and the target of each name.
#ifndef CAIRN_MAPPING_REPORT_H_
#define CAIRN_MAPPING_REPORT_H_

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "mapping/mapping.h"

namespace cairn::aoa {

struct MappingReport {
  struct ShapeMismatch {
    std::string name;
    Shape wanted;  // the destination's
    Shape mapped;  // the shape that the mapping makes
  };
  struct DtypeMismatch {
    std::string name;
    DType wanted;
    DType arrives;
    std::string source;  // one of the sources
  };
  // A group of outputs that are made in the same way and whose names differ only in their numbers.
  struct Group {
    std::string target;  // "model.layers.*.mlp.up_gate.weight"
    // The patterns of their sources, each once, with " x384" if one pattern means several sources.
    std::vector<std::string> sources;
    std::string operation;  // "rename", "merge of 2, [1, 0]", "part, bfloat16"
    size_t count = 0;       // outputs
  };

  size_t matched = 0;                   // outputs with a source
  size_t identities = 0;                // those of the matched outputs that keep name, size and content
  std::vector<std::string> missing;     // destination tensors without a source
  std::vector<std::string> unexpected;  // source tensors that no output uses
  std::vector<std::string> added;       // kept at their initial value, by `_ -> name`
  std::vector<std::string> removed;     // left out, by `name -> _`
  std::vector<ShapeMismatch> shape_mismatches;
  std::vector<DtypeMismatch> dtype_mismatches;
  std::vector<Group> groups;  // without identities; in order of names
};

// `destination` is what BuildMapping was given. The cost is linear in outputs and slices.
MappingReport MakeReport(const MappedState& mapped, std::optional<std::span<const ShardDesc>> destination);

struct ReportLimits {
  size_t names = 50;       // of each list
  size_t mismatches = 20;  // of each kind
  size_t groups = 100;
  size_t sources = 5;  // of a group
};

// Returns a table of plain text that ends with a newline. It gives the number of entries that the limits cut off.
std::string FormatReport(const MappingReport& report, const ReportLimits& limits = {});

}  // namespace cairn::aoa

#endif  // CAIRN_MAPPING_REPORT_H_

// Chooses the whole tensors of an export, import or comparison, and finds the stored tensors that each is made of.
#ifndef CAIRN_FOREIGN_TENSORS_WHOLE_TENSORS_H_
#define CAIRN_FOREIGN_TENSORS_WHOLE_TENSORS_H_

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "common/format/manifest.h"
#include "foreign/read/source/plain_header.h"
#include "mapping/mapping.h"
#include "planner/load/axis_map.h"

namespace cairn {

struct TensorChoice {
  // Without a mapping, every tensor keeps its own name. With one, the outputs are the names that exist after its last
  // statement.
  std::optional<aoa::Config> mapping;
  // Shell patterns (fnmatch) of stored names; empty means all. The mapping sees only the tensors that these patterns
  // choose.
  std::vector<std::string> include;
  std::vector<std::string> exclude;
};

// Returns true if the patterns choose a stored name.
bool IsChosen(const TensorChoice& choice, std::string_view name);

struct WholeTensor {
  PlainTensor plain;           // begin and end are set by the code that places it in a file
  std::vector<AxisMap> links;  // AxisMap::source is the number of a tensor of the manifest
};

// Returns the chosen tensors; their order is that of the manifest, or of the mapping's outputs and then of the
// optimizer states that follow these. A second name of a tied weight is returned only if a statement of the mapping
// produces it, or if the patterns choose it and do not choose the tensor's own name. INVALID_ARGUMENT: the mapping's
// faults; MAPPING_DTYPE: parts of one output arrive in different dtypes; MISSING_NAMES: a statement needs a name that
// is not stored. ALREADY_EXISTS (NAME_COLLISION): two outputs would have the same name.
absl::StatusOr<std::vector<WholeTensor>> ChooseTensors(const Manifest& manifest, const TensorChoice& choice);

// Returns the chosen second names of the tensors of ChooseTensors, each with the name of its tensor there, sorted.
// Empty with a mapping.
std::vector<std::pair<std::string, std::string>> ChooseAliases(const Manifest& manifest, const TensorChoice& choice);

}  // namespace cairn

#endif  // CAIRN_FOREIGN_TENSORS_WHOLE_TENSORS_H_
